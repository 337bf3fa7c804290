#!/usr/bin/env python3
"""Steps of supervised tuning under both losses: transformers' forward pass in float64, torch's AdamW, and per token the lines of TRL
1.16's SFTTrainer for loss_type: dft. Needs torch and transformers. Writes tests/golden/sft.json: rows, and for each loss the loss, the
gradient's norm and exp of the mean negative log-likelihood of every step.
"""
import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "models/qwen3"
STEPS, BATCH, RATE = 4, 3, 3e-2


def rows():
    rng = random.Random(3)
    out = []
    for _ in range(STEPS * BATCH):
        ids = [rng.randrange(3, 61) for _ in range(rng.randrange(3, 12))]
        out.append({"input_ids": ids, "labels": [t if rng.random() < 0.7 or i + 1 == len(ids) else -100 for i, t in enumerate(ids)]})
    return out


def run(data, loss_type):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    steps = []
    for step in range(STEPS):
        logps = []
        for row in data[step * BATCH : (step + 1) * BATCH]:
            labels = torch.tensor(row["labels"])[1:]
            logp = torch.log_softmax(model(torch.tensor([row["input_ids"]])).logits[0, :-1], -1)
            logps.append(logp.gather(1, labels.clamp(min=0)[:, None])[:, 0][labels >= 0])
        logp = torch.cat(logps)
        per_token_loss = -logp
        if loss_type == "dft":
            per_token_loss = per_token_loss * logp.exp().detach()
        loss = per_token_loss.sum() / len(logp)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": norm.item(), "perplexity": (-logp).mean().exp().item()})
    return steps


data = rows()
out = {"batch_size": BATCH, "learning_rate": RATE, "rows": data, "losses": {name: run(data, name) for name in ("nll", "dft")}}
(HERE / "sft.json").write_text(json.dumps(out) + "\n")
for name, steps in out["losses"].items():
    print(name, steps)
