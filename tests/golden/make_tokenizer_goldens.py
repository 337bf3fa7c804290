"""Writes tests/golden/tokenizers/*.json: small tokenizers of every kind, texts, and what Hugging Face makes of them.

Usage: python make_tokenizer_goldens.py GSM8K_TRAIN_JSONL QWEN2_TOKENIZER_JSON BENCH_TOKENIZER_JSON OUTPUT_DIRECTORY

texts.json holds the texts. NAME.json holds a tokenizer.json under "tokenizer" (absent for *_full, whose files are not
in the repository; "tables_of" names the file whose vocab and merges it shares) and per text the ids; "special": the ids
with special tokens, where they differ; "decoded": the text of the ids where it differs from the input, "skipped": the
same without special tokens. "streams" are ids that break characters or are unknown, with their texts.
"""

import copy
import itertools
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
MARKER = "\u2581"

PROSE = [
    "The quick brown fox jumps over the lazy dog. It's 3.14159, isn't it? WE'LL see; they'D know!",
    "Größe, naïve café, Ærøskøbing, œuvre, straße, İstanbul, ΑΒΓ δοκιμή σίγμας",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёж.",
    "机器学习是人工智能的一个分支。深度学习模型需要大量数据,2024年。",
    "日本語のテキスト、カタカナ、ひらがな。東京タワーは333メートル。",
    "한국어 텍스트 예시입니다. 각 각 \u1100\u1161\u11a8 밝",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤٥ سَلَامٌ",
    "हिन्दी में पाठ क्षेत्र १२३, ไทยภาษา ๑๒๓ น้ำ, Tiếng Việt: đặc biệt",
    "def f(x: int) -> str:\n\treturn f\"{x!r}\"  # comment\n\n\nclass A(B):\n    def __init__(self):\n        pass\n",
    "int main(void) {\r\n\tprintf(\"%d\\n\", 1 << 10);\r\n\treturn 0; /* ok */\r\n}\r\n",
    "<div class=\"x\">&nbsp;</div> https://example.org/a?b=c&d=%20 user@example.org $1,234.56 #tag 100% A&B",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ ✨ 1️⃣ ☃︎ 𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛 🄰🄱 Ⅷ ½ ² ㍿ ﬁ ﬃ ﷺ",
]
TEXTS = PROSE + [
    "", " ", "  ", "\n", "\n\n", "\t", "a", " a", "a ", "  a  b   c    ", "\u00a0x\u3000y\u2003z\u200bw\u180ev\ufeff",
    "'s 'S 'ſ 'T 're 'LL 'K can't CAN'T it's's ''s", "1234567890 12 123 1234 １２３ ٣٤٥ 1a2b3c", "\r\n\r\n \r\n x\r\ny \n z",
    "e\u0301 a\u0308\u0323 a\u0323\u0308 \u0344 q\u0307\u0323 \u212b \u2126 \u1e9b\u0323 \u0958 \u2adc \ufb1d \u0f73\u0f71",
    "\u1100\u1161 \u1100\u1161\u11a7 \uac00\u11a8 \u11a8\u1161", "x\u0897\u0301 a\u0898\u0327 \U00011935\U00011930 \u0b47\u0b3e",
    "\u1c89\ua7cb\U00010d50\U000105c0\U0002ebf0\U00031350 \U00010d40\U00011de0 \u1b4e\u2427\U0001fae9 \U0001f8b2",
    "a_b-c.d,e;f!g?h(i)[j]{k}<l>@m#n$o%p^q&r*s+t=u|v~w`x'y\"z/\\", "«quoted» “curly” ‘single’ — dash… ¿qué? ¡sí! §1 ¶ † ‡ 、。「」",
    "\x00\x01\x02\x7f\x80\x9f\xad", "\u202eright-to-left\u202c \u2028 \u2029 \x85 \x0b \x0c \x1c \x1f",
    "\ue000\uf8ff\U000f0000\U0010ffff\ufffd\ufffe\uffff", "a" * 60, "ab" * 40, "the " * 30, " " * 50, "\n" * 20, "=" * 33,
    MARKER, MARKER * 3 + "x", "x" + MARKER + " y " + MARKER, "<0x41><0x0A> <unk> <s></s>", "<unk", "<s", "</s><s> hi <s>hi</s>",
    "<|begin_of_text|>Hi<|end|> there <|end|>\n<|end|>", "[A] [B]x[B] x [AB] [ABC", "  <L>  <R>  <LR>  <W> x<W> <W>x _<W> é<W>",
    "MASK mask Mask  MASK", "<N> <n> É<Ñ>é <ñ> <N>x", "foo barbaz foobar foo_bar BAR", "<L>\n\n<R>\n\n<L> <R>\t<LR>\u00a0<LR>",
]


def with_gsm8k(path):
    with open(path) as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, 400)]
    return [row["question"] + "\n" + row["answer"] for row in rows]


def trained(corpus, size, pre_tokenizer, normalizer=None, alphabet=(), special=(), **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), special_tokens=list(special),
                                    limit_alphabet=400, show_progress=False))
    return tokenizer


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


BYTES = pre_tokenizers.ByteLevel.alphabet()
BYTE_TOKENS = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]


def flagged(normalized_names=True):
    tokens = [AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True), AddedToken("<LR>", lstrip=True, rstrip=True),
              AddedToken("<W>", single_word=True), AddedToken("[A]", normalized=False), AddedToken("[AB]", normalized=False),
              AddedToken("[B]", normalized=True), AddedToken("foo", single_word=True, normalized=False),
              AddedToken("bar", single_word=True, normalized=True), AddedToken("foobar", normalized=False),
              AddedToken("  ", normalized=False), AddedToken("MASK", lstrip=True, single_word=True, normalized=False)]
    if normalized_names:
        tokens += [AddedToken("<N>", normalized=True), AddedToken("É<Ñ>", normalized=True)]
    return tokens


def without_byte_tokens(config):
    # The trainer wants the bytes as special tokens; in real files they are plain ones.
    config["added_tokens"] = [t for t in config["added_tokens"] if not t["content"].startswith("<0x")]
    return config


def llama2_decoder():
    return decoders.Sequence([decoders.Replace(MARKER, " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def bos(token, id):
    return processors.TemplateProcessing(single=token + " $A", special_tokens=[(token, id)])


def build(corpus):
    """Name -> tokenizer.json as a dict."""
    out = {}
    sequence = pre_tokenizers.Sequence

    t = trained(corpus, 700, sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level()]), alphabet=BYTES)
    t.add_special_tokens(["<|begin_of_text|>", "<|end|>"])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            bos("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    out["llama3"] = json.loads(t.to_str())
    model = out["llama3"]["model"]
    model["ignore_merges"] = True
    for word in ["Ġbrown", "lazy", "Ġtherefore"]:  # tokens that no merge makes
        model["vocab"][word] = len(model["vocab"]) + 10

    t = trained(corpus, 700, sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level()]),
                normalizer=normalizers.NFC(), alphabet=BYTES)
    t.add_special_tokens(["<|begin_of_text|>", "<|end|>"])
    t.add_tokens(flagged())
    t.decoder = decoders.ByteLevel()
    out["qwen2"] = json.loads(t.to_str())
    out["qwen2"]["model"]["merges"] = [" ".join(m) for m in out["qwen2"]["model"]["merges"]]

    t = trained(corpus, 500, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True), alphabet=sorted(BYTES)[:250])
    t.add_tokens(flagged())
    t.decoder = decoders.ByteLevel()
    out["gpt2"] = json.loads(t.to_str())

    spaces = normalizers.Replace(" ", MARKER)
    t = trained(corpus, 1000, pre_tokenizers.Split(Regex(MARKER + "?[^" + MARKER + "\n]+|\n+|" + MARKER + "+"), "isolated"),
                normalizer=spaces, special=BYTE_TOKENS, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(1, 8)] +
                 [AddedToken(MARKER * n, normalized=False) for n in range(2, 8)] +
                 [AddedToken("<unused%d>" % n, normalized=False) for n in range(30)] +
                 [AddedToken("<div>", normalized=False), AddedToken("</div>", normalized=False)])
    t.decoder = decoders.Sequence([decoders.Replace(MARKER, " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = bos("<s>", 1)
    out["gemma"] = without_byte_tokens(json.loads(t.to_str()))

    legacy = normalizers.Sequence([normalizers.Prepend(MARKER), normalizers.Replace(" ", MARKER)])
    t = trained(corpus, 900, pre_tokenizers.Metaspace(), special=BYTE_TOKENS, unk_token="<unk>", fuse_unk=True,
                byte_fallback=True)
    t.normalizer = legacy
    t.pre_tokenizer = None
    t.add_tokens([AddedToken("<N>", normalized=True), AddedToken("[A]", normalized=False)])
    t.decoder = llama2_decoder()
    t.post_processor = bos("<s>", 1)
    out["llama2_legacy"] = without_byte_tokens(json.loads(t.to_str()))

    for scheme, split in [("first", False), ("always", True), ("never", True)]:
        kind = copy.deepcopy(out["llama2_legacy"])
        kind["normalizer"] = None
        kind["pre_tokenizer"] = {"type": "Metaspace", "replacement": MARKER, "prepend_scheme": scheme, "split": split}
        if scheme != "first":
            kind["decoder"] = dict(kind["pre_tokenizer"])
            kind["model"]["byte_fallback"] = False
            kind["model"]["fuse_unk"] = scheme == "always"
        out["metaspace_" + scheme] = kind

    plain = sequence([pre_tokenizers.Digits(True), pre_tokenizers.Punctuation(), pre_tokenizers.Whitespace()])
    folding = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    t = trained(corpus, 600, plain, normalizer=folding, unk_token="<unk>", special=["<unk>"])
    t.add_tokens(flagged())
    t.decoder = decoders.Fuse()
    out["folding"] = json.loads(t.to_str())

    small = copy.deepcopy(out["folding"]["model"])
    small["vocab"] = {k: v for k, v in small["vocab"].items() if v < 330}
    small["merges"] = [m for m in small["merges"] if "".join(m) in small["vocab"]]
    kinds = [("Removed", False, {"Regex": r"\s+"}), ("Isolated", True, {"Regex": r"\w+"}), ("MergedWithPrevious", False, {"String": "a"}),
             ("MergedWithNext", True, {"Regex": r"[^\P{L}x-z]"}), ("Contiguous", False, {"Regex": r"[\p{P}\p{S}]"})]
    for behavior, invert, pattern in kinds:
        out["split_" + behavior.lower()] = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "NFD"}, "pre_tokenizer": {"type": "Split", "pattern": pattern, "behavior": behavior,
                                                            "invert": invert},
            "post_processor": None, "decoder": None, "model": small}
    return out


def streams(tokenizer, rng):
    """Sequences of ids that no text gives: broken characters, unknown ids."""
    size = tokenizer.get_vocab_size()
    out = []
    for length in (1, 2, 3, 5, 8, 13, 21, 40):
        ids = [rng.randrange(size + 3) if rng.random() < 0.5 else rng.randrange(min(size, 260)) for _ in range(length)]
        out.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                    "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return out


def golden(tokenizer):
    rows = {"ids": [], "special": [], "decoded": {}, "skipped": {}}
    for i, text in enumerate(TEXTS):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text, add_special_tokens=True).ids
        rows["ids"].append(ids)
        rows["special"].append(special if special != ids else None)
        for key, skip in (("decoded", False), ("skipped", True)):
            back = tokenizer.decode(ids, skip_special_tokens=skip)
            if back != text:
                rows[key][str(i)] = back
    rows["streams"] = streams(tokenizer, random.Random(7))
    return rows


def main():
    gsm8k, qwen2, bench, directory = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)

    def write(name, value):
        with open(os.path.join(directory, name + ".json"), "w") as out:
            json.dump(value, out, ensure_ascii=False, separators=(",", ":"))
            out.write("\n")

    write("texts", TEXTS)
    models_seen = {}
    for name, config in build(with_gsm8k(gsm8k) + PROSE * 3).items():
        rows = golden(Tokenizer.from_str(json.dumps(config)))
        # A model that an earlier file holds but for its flags is not written again.
        tables = json.dumps([config["model"]["vocab"], config["model"]["merges"]])
        owner = models_seen.setdefault(tables, name)
        if owner != name:
            config = {**config, "model": {k: v for k, v in config["model"].items() if k not in ("vocab", "merges")}}
            rows["tables_of"] = owner
        write(name, {"tokenizer": config, **rows})
    write("qwen2_full", golden(Tokenizer.from_file(qwen2)))
    write("bench_full", golden(Tokenizer.from_file(bench)))


if __name__ == "__main__":
    main()
