"""Prints whether PEFT reads an adapter as Temper does: peft_scores.py MODEL ADAPTER ROWS SCORES (rows {"tokens"}, what `temper score` gave)."""
import json
import sys

import peft
import torch
import transformers

base, adapter, rows, scores = sys.argv[1:]
torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
model = peft.PeftModel.from_pretrained(model, adapter).eval()
worst = 0.0
for row, score in zip(open(rows), open(scores), strict=True):
    x = torch.tensor([json.loads(row)["tokens"]])
    with torch.no_grad():
        logp = torch.log_softmax(model(input_ids=x).logits[0, :-1], -1).gather(1, x[0, 1:, None])[:, 0]
    worst = max(worst, (logp - torch.tensor(json.loads(score)["logprobs"])).abs().max().item())
print(f"{adapter}: log-probabilities differ by at most {worst:.1e}")
sys.exit(worst > 2e-5)
