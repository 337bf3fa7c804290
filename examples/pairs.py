#!/usr/bin/env python3
"""Pairs of completions from rows {prompt, completion} of sums: the right answer is chosen, one with a wrong digit rejected.

    python3 examples/pairs.py demo/sums.jsonl demo/pairs.jsonl
"""
import json
import random
import sys

with open(sys.argv[1]) as rows, open(sys.argv[2], "w") as pairs:
    rng = random.Random(0)
    for line in rows:
        row = json.loads(line)
        answer = row["completion"]
        place = rng.choice([i for i, character in enumerate(answer) if character.isdigit()])
        wrong = (int(answer[place]) + rng.randrange(1, 10)) % 10
        pair = {"prompt": row["prompt"], "chosen": answer, "rejected": answer[:place] + str(wrong) + answer[place + 1 :]}
        pairs.write(json.dumps(pair) + "\n")
