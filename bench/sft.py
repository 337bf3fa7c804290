#!/usr/bin/env python3
"""Supervised fine-tuning of one model on the same rows by Temper and by TRL, in one run.

usage: bench/sft.py [--python PATH] [--model DIR] [--rows FILE] [--steps N]

The model is a directory that `temper init` made, the rows are GSM8K's (question
and answer). Rates leave the first two steps out; tokens are the rows' own, padding is not counted; memory is the peak of the
process. Machines that do other work at the same time give numbers that mean nothing.
"""
import argparse
import json
import subprocess
import tempfile
import time

import peers

BATCH = 16

PEER = r"""
import json, resource, sys, time
start = time.time()
model, rows, steps, lora = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "lora"
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer
data = [json.loads(line) for line in open(rows)][: 16 * steps]
tokenizer = AutoTokenizer.from_pretrained(model)
count = [len(tokenizer(r["question"])["input_ids"]) + len(tokenizer(r["answer"])["input_ids"]) + 1 for r in data]
class Times(TrainerCallback):
    ends = []
    def on_step_end(self, *args, **kwargs): self.ends.append(time.time())
config = SFTConfig(output_dir=sys.argv[5], per_device_train_batch_size=16, max_steps=steps, max_length=1024, use_cpu=True, bf16=False,
                   gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1, learning_rate=1e-3,
                   disable_tqdm=True, dataloader_drop_last=False)
SFTTrainer._get_train_sampler = lambda self, *a: __import__("torch").utils.data.SequentialSampler(self.train_dataset)
trainer = SFTTrainer(AutoModelForCausalLM.from_pretrained(model, dtype="float32"), args=config, processing_class=tokenizer, callbacks=[Times()],
                     train_dataset=Dataset.from_list([{"prompt": r["question"], "completion": r["answer"]} for r in data]),
                     peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if lora else None)
trainer.train()
ends = Times.ends
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
print("RESULT " + json.dumps({"tokens_per_second": sum(count[32:16 * steps]) / (ends[-1] - ends[1]), "first_step_seconds": ends[0] - start,
                              "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "losses": losses}))
"""


def run_temper(model, rows, steps, lora, directory):
    out = f"{directory}/temper"
    start = time.time()
    subprocess.check_call([peers.TEMPER, "sft", f"output_dir={out}", f"model.path={model}", f"data.train={rows}",
                           "data.columns={prompt: question, completion: answer}", "data.shuffle=false", f"train.batch_size={BATCH}",
                           f"train.max_steps={steps}", "optimizer.learning_rate=1e-3", "optimizer.schedule=linear", "metrics.sinks=[jsonl]"]
                          + (["adapter.method=lora"] if lora else []))
    wall = time.time() - start
    lines = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    timed = lines[2:]
    return {"tokens_per_second": sum(r["tokens"] for r in timed) / sum(r["step_seconds"] for r in timed),
            "first_step_seconds": wall - sum(r["step_seconds"] for r in lines[1:]), "peak_memory_bytes": lines[-1]["peak_memory_bytes"],
            "losses": [r["loss"] for r in lines]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--model", default=None, help="made where it is not given")
    parser.add_argument("--rows", default=str(peers.ROOT / "../shared/data/gsm8k/train.jsonl"))
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    model = args.model or peers.model()
    for lora in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            ours = run_temper(model, args.rows, args.steps, lora, directory)
            peer = peers.run_python(args.python, PEER, model, args.rows, args.steps, "lora" if lora else "full", f"{directory}/trl")
        print("LoRA rank 16" if lora else "all weights")
        for name, r in (("Temper", ours), ("TRL", peer)):
            if r:
                print(f"  {name:7} {r['tokens_per_second']:7.0f} tokens/s  {r['peak_memory_bytes'] / 1e9:5.2f} GB  first step after "
                      f"{r['first_step_seconds']:5.1f} s  loss {r['losses'][0]:.5f} to {r['losses'][-1]:.5f}")
        if peer:
            worst = max(abs(a - b) / b for a, b in zip(ours["losses"], peer["losses"]))
            print(f"  speed {ours['tokens_per_second'] / peer['tokens_per_second']:.1f} times, memory "
                  f"{100 * ours['peak_memory_bytes'] / peer['peak_memory_bytes']:.0f} %, losses differ by at most {100 * worst:.3f} %")


main()
