#!/usr/bin/env python3
"""Shows that transformers loads a model directory that Temper wrote, and computes the same.

usage: tools/compare_logits.py MODEL [--temper build/temper] [--adapter DIR] [--rows FILE.jsonl]

Rows hold `tokens` or `text` (default: token ids drawn at random). Compares the log-probability of every token after the
first, and the likeliest next tokens, in float32. Needs torch and transformers (and peft for an adapter). Exit status 1
where they differ by more than 1e-4.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--temper", default="build/temper")
parser.add_argument("--adapter")
parser.add_argument("--rows")
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
if args.adapter:
    from peft import PeftModel

    model = PeftModel.from_pretrained(model, args.adapter).eval()
if args.rows:
    given = [json.loads(line) for line in open(args.rows)][:20]
    rows = [r["tokens"] if "tokens" in r else AutoTokenizer.from_pretrained(args.model)(r["text"])["input_ids"] for r in given]
else:
    rng = random.Random(0)
    rows = [[rng.randrange(model.config.vocab_size) for _ in range(n)] for n in (2, 7, 33, 128)]

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/in.jsonl", "w") as f:
        f.writelines(json.dumps({"tokens": row}) + "\n" for row in rows)
    command = [args.temper, "score", "--model", args.model, "--input", f"{folder}/in.jsonl", "--output", f"{folder}/out.jsonl", "--top-logprobs", "5"]
    subprocess.check_call(command + (["--adapter", args.adapter] if args.adapter else []))
    ours = [json.loads(line) for line in open(f"{folder}/out.jsonl")]

worst = 0.0
for row, mine in zip(rows, ours):
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor([row])).logits[0].float(), -1)
    theirs = logp[:-1].gather(1, torch.tensor(row[1:])[:, None])[:, 0]
    worst = max([worst] + (theirs - torch.tensor(mine["logprobs"])).abs().tolist())
    worst = max([worst] + [abs(logp[-1, token].item() - p) for token, p in mine["next_top"]])
print(f"{len(rows)} rows, {sum(map(len, rows))} tokens: log-probabilities differ by at most {worst:.2e}")
sys.exit(worst > 1e-4)
