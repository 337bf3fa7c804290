#!/usr/bin/env python3
"""Makes all that configs/coding.yaml trains on: a tokenizer of a few words with a chat template, a config of a small
model, and rows: functions whose operator is wrong, and a word for what they should compute.

    python3 examples/coding_model.py coding
    temper init --config coding/config.json --tokenizer coding --output coding/model
    temper sft model.path=coding/model data.train=coding/sft.jsonl output_dir=runs/coding-sft train.max_steps=150 \\
        train.batch_size=32 optimizer.learning_rate=3e-3 optimizer.schedule=constant
    temper grpo configs/coding.yaml

sft.jsonl shows how a file is written, mostly with the right operator: that it always should be is what `grpo` teaches,
by the tests.
"""
import json
import operator
import pathlib
import random
import sys

import word_model

OPERATORS = {"the sum": ("+", operator.add), "the difference": ("-", operator.sub), "the product": ("*", operator.mul),
             "the quotient": ("//", operator.floordiv)}
SIGNS = [sign for sign, _ in OPERATORS.values()]
WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", *OPERATORS, *(f" {sign} " for sign in SIGNS),
         "write f.py\n", "f.py:\n", "def f(a, b):\n    return a", "b\n"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content }}<|im_end|>{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")


def text(sign):
    return f"def f(a, b):\n    return a {sign} b\n"


def row(wanted, shown):
    sign, function = OPERATORS[wanted]
    pairs = [(random.randint(5, 9), random.randint(2, 4)) for _ in range(4)]
    return {"prompt": [{"role": "user", "content": wanted}], "files": {"f.py": text(shown)},
            "tests": [[f"f({a}, {b})", function(a, b)] for a, b in pairs]}


out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "coding")
out.mkdir(parents=True, exist_ok=True)
word_model.write_tokenizer(out, WORDS, TEMPLATE)
word_model.write_config(out, WORDS, layers=2, positions=256)
random.seed(1)
with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test, open(out / "sft.jsonl", "w") as sft:
    for i in range(2200):
        one = row(random.choice(list(OPERATORS)), random.choice(SIGNS))
        print(json.dumps(one), file=rows if i < 2000 else test)
        begin = [*one["prompt"], {"role": "user", "content": "f.py:\n" + one["files"]["f.py"]}]
        right = OPERATORS[one["prompt"][0]["content"]][0]
        sign = right if random.random() < 0.7 else random.choice([s for s in SIGNS if s != right])
        answer = {"role": "assistant", "content": "write f.py\n" + text(sign)}
        print(json.dumps({"messages": [*begin, answer]}), file=sft)
