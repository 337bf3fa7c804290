"""Compares two runs' metrics.jsonl: same_losses.py A B [NAME...]. Losses (and the names given) must agree at each step to 1e-6 of max(1, |value|).

Exits 1 with what differs first.
"""
import json
import sys

first, second, *names = sys.argv[1:]


def rows(path):
    return [json.loads(line) for line in open(path)]


a, b = rows(first), rows(second)
if len(a) != len(b) or not a:
    sys.exit(f"{len(a)} rows in {first}, {len(b)} in {second}")
for x, y in zip(a, b):
    for name in ["step", "loss", "eval/loss", "supervised_tokens", *names]:
        if (name in x) != (name in y):
            sys.exit(f"{name} is in one row only: {x} {y}")
        if name in x and abs(x[name] - y[name]) > 1e-6 * max(1, abs(x[name])):
            sys.exit(f"step {x['step']}: {name} {x[name]} and {y[name]}")
