#!/usr/bin/env python3
"""DPO and reward-model training on the same preference pairs by Temper and by TRL, in one run.

usage: bench/preference.py [--python PATH] [--rows FILE] [--steps N] [--repeats N] [--micro-batch N] [--rejected
changed|other]

The model is the one that `temper init` made, with a scalar head of transformers' for the reward model; the pairs are
GSM8K's answers against the same with a wrong number (`temper data pairs`), 16 a step, in file order, float32, AdamW.
DPO (sigmoid, beta 0.1) runs with the reference model beside the policy and with its log-probabilities computed before
training.

Tokens are those of prompt and chosen and of prompt and rejected, without padding, as TRL logs them (`num_tokens`) and
Temper does (`tokens`), and both must be equal in every step. What Temper puts through the model is less: a pair's
common beginning goes through once. These pairs have much in common; with --rejected other the rejected completion is
the next row's answer, and only the prompt is common.

Rates leave the first two steps out; the log-probabilities computed before training belong to the first step. Memory is
the peak of the process. --micro-batch is TRL's pairs in one pass (gradients are accumulated), all 16 by default.
Machines that do other work at the same time give numbers that mean nothing; --repeats runs both in turn and gives the
best of each.
"""
import argparse
import json
import subprocess
import tempfile

import peers

BATCH = 16
RATE = {"dpo": 1e-5, "reward": 1e-4}

TRL = peers.PRELUDE + r"""
verb, model, rows, steps, micro, rate, reference, out = sys.argv[1:9]
steps, micro = int(steps), int(micro)
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
settings = dict(output_dir=out, per_device_train_batch_size=micro, gradient_accumulation_steps=16 // micro, max_steps=steps, max_length=1024,
                use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1,
                learning_rate=float(rate), disable_tqdm=True)
times = step_ends()
common = dict(processing_class=AutoTokenizer.from_pretrained(model), callbacks=[times],
              train_dataset=Dataset.from_list([json.loads(line) for line in open(rows)]))
if verb == "dpo":
    in_order(DPOTrainer)
    load = lambda: AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    trainer = DPOTrainer(load(), ref_model=load() if reference == "model" else None,
                         args=DPOConfig(beta=0.1, precompute_ref_log_probs=reference == "precomputed", **settings), **common)
else:
    in_order(RewardTrainer)
    trainer = RewardTrainer(AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, dtype="float32"),
                            args=RewardConfig(**settings), **common)
trainer.train()
log = [row for row in trainer.state.log_history if "loss" in row]
seen = [0] + [int(row["num_tokens"]) for row in log]
count = [b - a for a, b in zip(seen, seen[1:])]
result(**rates(times.ends, count), losses={"loss": [row["loss"] for row in log]})
"""

# The model with a fresh scalar head, for both.
HEAD = peers.PRELUDE + r"""
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
torch.manual_seed(1)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], num_labels=1, dtype="float32")
model.config.pad_token_id = tokenizer.pad_token_id
model.save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
result()
"""


def pairs(source, count, rejected, directory):
    """The first `count` pairs. The prompt ends with a line break, so that its tokens are the same with and without a completion."""
    made, path = f"{directory}/made.jsonl", f"{directory}/pairs.jsonl"
    subprocess.check_call([peers.TEMPER, "data", "pairs", "--input", source, "--columns", "prompt=question", "completion=answer",
                           "--output", made], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(made)][: count + 1]
    with open(path, "w") as out:
        for row, following in zip(rows[:count], rows[1:]):
            row["prompt"] += "\n"
            if rejected == "other":
                row["rejected"] = following["chosen"]
            out.write(json.dumps(row) + "\n")
    return path


def temper(verb, model, rows, steps, reference, out):
    choice = {"model": ["preference.reference=model", f"preference.reference_model={model}"],
              "precomputed": ["preference.reference=precomputed"]}.get(reference, [])
    return peers.temper(verb, out, f"model.path={model}", f"data.train={rows}", f"train.batch_size={BATCH}", f"train.max_steps={steps}",
                        f"optimizer.learning_rate={RATE[verb]}", "optimizer.schedule=linear", *choice)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--rows", default=str(peers.GSM8K), help="rows with question and answer")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--micro-batch", type=int, default=BATCH, choices=[1, 2, 4, 8, 16])
    parser.add_argument("--rejected", choices=["changed", "other"], default="changed")
    parser.add_argument("--only", choices=["dpo", "precomputed", "reward"])
    args = parser.parse_args()
    model = peers.model()
    with tempfile.TemporaryDirectory() as directory:
        rows = pairs(args.rows, BATCH * args.steps, args.rejected, directory)
        head = f"{directory}/head"
        has_head = peers.run_python(args.python, HEAD, model, head)
        for name, title, verb, start, reference in (
                ("dpo", "DPO, reference model run along", "dpo", model, "model"),
                ("precomputed", "DPO, reference computed before", "dpo", model, "precomputed"),
                ("reward", "reward model", "reward", head if has_head else model, "none")):
            if args.only not in (None, name):
                continue
            run = iter(range(2 * args.repeats))
            out = lambda: f"{directory}/{name}-{next(run)}"
            found = peers.alternately(
                args.repeats, lambda: temper(verb, start, rows, args.steps, reference, out()),
                lambda: peers.run_python(args.python, TRL, verb, start, rows, args.steps, args.micro_batch, RATE[verb], reference, out()))
            peers.report(title, "TRL", *found)


main()
