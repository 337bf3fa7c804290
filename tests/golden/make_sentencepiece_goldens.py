"""Writes tests/golden/sentencepiece/: small SentencePiece models in model directories, and the ids of texts.

Usage: python make_sentencepiece_goldens.py tests/golden/sentencepiece

llama/ is a byte-pair model with bytes for unknown characters and a space before the text, as Llama 2's; gemma/ the same
without that space and with user-defined symbols; unigram/ one of the other kind, with NFKC normalisation. expected.json:
for each directory [text, ids] pairs: between the special tokens of the directory, which stand for themselves, the ids are
those that the sentencepiece package gives. As in transformers 5, which the ids of llama/ and llama_legacy/ are compared
with, the space stands before the text, under `legacy: true` before each part of it, unless there is one.
"""

import io
import json
import os
import re
import sys

import sentencepiece
from transformers import LlamaTokenizer

TEXT = """The quick brown fox jumps over the lazy dog. A tokenizer cuts text into pieces, and the pieces have numbers.
Numbers like 2024 and 3.14 are cut as well; so are (brackets), "quotes" and it's apostrophes. Grüße aus Zürich!
What is learned from a small text is a small vocabulary: the the the and and and of of of to to to in in in. 你好 世界
def f(x): return x + 1  # code has spaces    and newlines
""".splitlines() * 3

TEXTS = ["", " ", "Hello world", " leading", "trailing ", "two  spaces   three", "the quick brown fox", "The\nlines\n\n", "\ttab",
         "Grüße 你好 🙂", "<s>the</s>", "<s> the </s> quick<s>", "the</s>", "a</s></s> b", "▁mark ▁ it", "x + 1    # code", "ﬁ ① Ａ", "éé",
         "<unk>the", "2024 3.14", "0123456789" * 3, "<turn>the<turn> fox", "nul\u0000byte", "\u00a0nbsp\u3000wide"]


def train(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
    return model.getvalue()


def token(content):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}


def encode(bare, spaced, special, text, everywhere, doubled):
    ids, begin = [], True
    for part in re.split("(" + "|".join(map(re.escape, special)) + ")", text):
        if part in special:
            ids.append(special[part])
        elif part:
            ids += (spaced if (begin or everywhere) and part[0] not in doubled else bare).encode(part)
        begin = begin and not part
    return ids


def main(directory):
    bpe = dict(model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
               remove_extra_whitespaces=False, character_coverage=1.0, split_digits=True, allow_whitespace_only_pieces=True)
    models = {
        "llama": (bpe, {"legacy": False}),
        "llama_legacy": (bpe, {"legacy": True}),
        "gemma": (dict(bpe, add_dummy_prefix=False, user_defined_symbols=["<turn>", "\n", "  "]), {"add_eos_token": True}),
        "unigram": (dict(model_type="unigram", vocab_size=150, normalization_rule_name="nmt_nfkc"), {}),
    }
    expected = {}
    for name, (options, config) in models.items():
        folder = os.path.join(directory, name)
        os.makedirs(folder, exist_ok=True)
        model = train(**options)
        with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
            file.write(model)
        spaced = sentencepiece.SentencePieceProcessor(model_proto=model)
        # Merged into the normalizer's settings: add_dummy_prefix false.
        bare = sentencepiece.SentencePieceProcessor(model_proto=model + b"\x1a\x02\x18\x00")
        special = {"<unk>": 0, "<s>": 1, "</s>": 2}
        if config:
            config["added_tokens_decoder"] = {str(i): token(t) for t, i in special.items()}
            config["added_tokens_decoder"][str(len(spaced))] = token("<extra>")
            special = special | {"<extra>": len(spaced)}
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", **config}, file)
        everywhere, doubled = config.get("legacy", False), "" if name == "unigram" else " \u2581"
        expected[name] = [[t, encode(bare, spaced, special, t, everywhere, doubled)] for t in TEXTS + ["a<extra>b"]]
        if name.startswith("llama"):
            tokenizer = LlamaTokenizer.from_pretrained(folder)
            for text, ids in expected[name]:
                assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids, (name, text, ids)
    with open(os.path.join(directory, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
