#!/usr/bin/env python3
"""Makes all that configs/frozen_lake.yaml and configs/sokoban.yaml train on: a tokenizer of moves and cells with a chat
template, a config of a small model, and rows.

    python3 examples/grid_games_model.py frozen_lake
    temper init --config frozen_lake/config.json --tokenizer frozen_lake --output frozen_lake/model
    temper grpo configs/frozen_lake.yaml

A cell is a token, and a turn is one move.
"""
import json
import pathlib
import random
import sys

import word_model

WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "Left", "Down", "Right", "Up", "\n", "#", "_", "O", "√", "X", "P", "S", "G"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content }}<|im_end|>{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")
FIELDS = {"frozen_lake": {"size": 3, "p": 0.8}, "sokoban": {"size": [5, 6], "boxes": 1, "max_steps": 12}}

game = sys.argv[1] if len(sys.argv) > 1 else "frozen_lake"
out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else game)
out.mkdir(parents=True, exist_ok=True)
word_model.write_tokenizer(out, WORDS, TEMPLATE)
word_model.write_config(out, WORDS, layers=3, positions=1024)
random.seed(1)
with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test:
    for i in range(4200):
        row = json.dumps({"prompt": [{"role": "user", "content": "\n"}], "seed": random.randrange(10**9), "instructions": False, **FIELDS[game]})
        print(row, file=rows if i < 4000 else test)
