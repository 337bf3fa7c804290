"""Writes tests/golden/added_tokens.json: what transformers' add_tokens makes of the tokenizers of tests/golden/tokenizers.

Usage: python make_added_token_goldens.py TOKENIZERS_DIRECTORY OUTPUT_JSON

For each tokenizer the ids of the new tokens and of texts with them, before and after the tokenizer was saved and read.
"""

import json
import pathlib
import sys
import tempfile

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

NAMES = ["gpt2", "llama3", "qwen2", "gemma", "llama2_legacy", "split_removed"]
TOKENS = ["<think>", "</think>", "two words", " lead", "Größe!", "<th"]
TEXTS = ["<think>yes</think>", "a <think> b</think>c", "two words, twotwo words", "x lead  lead", "Größe!GRÖSSE!", "<th><thi",
         "<think><think>", "  <think>\n</think> ", "the <think", "<THINK>"]


def main(directory, output):
    found = {}
    for name in NAMES:
        document = json.loads((pathlib.Path(directory) / f"{name}.json").read_text())["tokenizer"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(document)))
        assert tokenizer.add_tokens(TOKENS) == len(TOKENS)
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        with tempfile.TemporaryDirectory() as saved:
            tokenizer.save_pretrained(saved)
            again = AutoTokenizer.from_pretrained(saved)
            assert [again(text, add_special_tokens=False)["input_ids"] for text in TEXTS] == ids
            written = json.loads((pathlib.Path(saved) / "tokenizer.json").read_text())["added_tokens"][-len(TOKENS):]
        found[name] = {"new_ids": tokenizer.convert_tokens_to_ids(TOKENS), "ids": ids, "written": written,
                       "decoded": [tokenizer.decode(i) for i in ids]}
    text = json.dumps({"tokens": TOKENS, "texts": TEXTS, "tokenizers": found}, ensure_ascii=False, indent=1)
    pathlib.Path(output).write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
