#!/usr/bin/env python3
"""Logit distillation by Temper and by a plain PyTorch loop on transformers' models, in one run.

usage: bench/distill.py [--python PATH] [--rows FILE] [--steps N] [--repeats N] [--micro-batch N]

The student is the benchmark model, the teacher one of its family with twice the width (109M parameters of random
weights); GSM8K's answers, 16 rows a step in file order, forward KL at temperature 2, alpha 0.5, AdamW, float32. The
loop is the usual one: a collator that pads, the teacher's logits without a graph, the student's logits, both taken at
the supervised tokens, KL and cross entropy, AdamW.

Tokens are those of the rows, without padding, equal on both sides. Rates leave the first two steps out; memory is the
peak of the process. --micro-batch is the loop's rows in one pass (gradients are accumulated), all 16 by default.
Machines that do other work at the same time give numbers that mean nothing; --repeats runs both in turn and gives the
best of each.
"""
import argparse
import json
import tempfile

import peers

BATCH = 16
RATE = 1e-3

LOOP = peers.PRELUDE + r"""
student, teacher, rows, steps, micro, rate = sys.argv[1:7]
steps, micro, alpha, T = int(steps), int(micro), 0.5, 2.0
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup
tokenizer = AutoTokenizer.from_pretrained(student)
load = lambda path: AutoModelForCausalLM.from_pretrained(path, dtype="float32")
student, teacher = load(student).train(), load(teacher).eval().requires_grad_(False)
def example(row):
    prompt, answer = (tokenizer(row[name])["input_ids"] for name in ("question", "answer"))
    answer = answer + [tokenizer.eos_token_id]
    return {"input_ids": torch.tensor(prompt + answer), "labels": torch.tensor([-100] * len(prompt) + answer)}
def collate(rows):
    pad = lambda name, value: torch.nn.utils.rnn.pad_sequence([r[name] for r in rows], batch_first=True, padding_value=value)
    return {"input_ids": pad("input_ids", tokenizer.pad_token_id), "labels": pad("labels", -100),
            "attention_mask": torch.nn.utils.rnn.pad_sequence([torch.ones_like(r["input_ids"]) for r in rows], batch_first=True)}
data = [example(json.loads(line)) for line in open(rows)]
optimizer = torch.optim.AdamW(student.parameters(), lr=float(rate), weight_decay=0.0)
schedule = get_linear_schedule_with_warmup(optimizer, 0, steps)
ends, tokens, losses = [], [], {"loss": [], "distill_loss": [], "task_loss": []}
for step in range(steps):
    batch = data[16 * step : 16 * (step + 1)]
    supervised = sum((r["labels"] >= 0).sum().item() for r in batch)
    totals = torch.zeros(2)
    for i in range(0, 16, micro):
        inputs = collate(batch[i : i + micro])
        labels = inputs.pop("labels")[:, 1:]
        at = labels >= 0
        with torch.no_grad():
            target = teacher(**inputs, use_cache=False).logits[:, :-1][at]
        logits = student(**inputs, use_cache=False).logits[:, :-1][at]
        distill = T * T * F.kl_div(F.log_softmax(logits / T, -1), F.log_softmax(target / T, -1), reduction="sum", log_target=True) / supervised
        task = F.cross_entropy(logits, labels[at], reduction="sum") / supervised
        (alpha * distill + (1 - alpha) * task).backward()
        totals += torch.stack([distill.detach(), task.detach()])
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step(); schedule.step(); optimizer.zero_grad()
    distill, task = totals.tolist()
    for name, value in (("loss", alpha * distill + (1 - alpha) * task), ("distill_loss", distill), ("task_loss", task)): losses[name].append(value)
    tokens.append(sum(len(r["input_ids"]) for r in batch))
    ends.append(now())
result(**rates(ends, tokens), losses=losses)
"""


def wide_teacher(directory):
    """The benchmark's config with twice the width: heads, hidden and intermediate size."""
    config = json.load(open(peers.BENCH / "config.json"))
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
        config[key] *= 2
    path = f"{directory}/config.json"
    json.dump(config, open(path, "w"))
    return peers.model(peers.MODEL.with_name("bench-wide"), path)


def temper(student, teacher, rows, steps, out):
    return peers.temper("distill", out, f"model.path={student}", f"distill.teacher={teacher}", f"data.train={rows}",
                        "data.columns={prompt: question, completion: answer}", "distill.temperature=2", "distill.alpha=0.5",
                        f"train.batch_size={BATCH}", f"train.max_steps={steps}", f"optimizer.learning_rate={RATE}", "optimizer.schedule=linear")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--rows", default=str(peers.GSM8K), help="rows with question and answer")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--micro-batch", type=int, default=BATCH, choices=[1, 2, 4, 8, 16])
    args = parser.parse_args()
    student = peers.model()
    with tempfile.TemporaryDirectory() as directory:
        teacher = wide_teacher(directory)
        rows = f"{directory}/rows.jsonl"
        with open(args.rows) as source, open(rows, "w") as out:
            out.writelines(line for _, line in zip(range(BATCH * args.steps), source))
        run = iter(range(args.repeats))
        found = peers.alternately(
            args.repeats, lambda: temper(student, teacher, rows, args.steps, f"{directory}/{next(run)}"),
            lambda: peers.run_python(args.python, LOOP, student, teacher, rows, args.steps, args.micro_batch, RATE))
        peers.report("logit distillation, a teacher of twice the width", "PyTorch", *found)


main()
