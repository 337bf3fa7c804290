#!/usr/bin/env python3
"""Makes all that configs/grid_world.yaml trains on: a tokenizer of a few words with a chat template, a config of a
small model, and rows.

    python3 examples/grid_world_model.py grid_world
    temper init --config grid_world/config.json --tokenizer grid_world --output grid_world/model
    temper grpo configs/grid_world.yaml

What the words and the template leave out, the model never sees: it is told "it lies north and east", and learns to say
"north" or "east".
"""
import json
import pathlib
import random
import sys

import word_model

WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "north", "south", "east", "west", " and ", "it lies ", "wall"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content }}<|im_end|>{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "grid_world")
out.mkdir(parents=True, exist_ok=True)
word_model.write_tokenizer(out, WORDS, TEMPLATE)
word_model.write_config(out, WORDS, layers=2, positions=256)
random.seed(1)
with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test:
    for i in range(2200):
        row = json.dumps({"prompt": [{"role": "user", "content": "it lies "}], "size": 4, "seed": random.randrange(10**9)})
        print(row, file=rows if i < 2000 else test)
