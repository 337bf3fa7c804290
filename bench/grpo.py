#!/usr/bin/env python3
"""One GRPO step by Temper and by TRL: 8 prompts x 8 samples x 128 tokens, beta 0, float32.

usage: bench/grpo.py [--python PATH] [--steps N]

Seconds a step, the first left out; memory is the peak of the process. Machines that do other work at the same time give
numbers that mean nothing.
"""
import argparse
import json
import subprocess
import tempfile

import peers

TRL = r"""
import json, resource, sys, time
model, rows, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
data = [json.loads(line) for line in open(rows)][: 8 * steps]
tokenizer = AutoTokenizer.from_pretrained(model)
class Times(TrainerCallback):
    ends = []
    def on_step_end(self, *args, **kwargs): self.ends.append(time.time())
config = GRPOConfig(output_dir=sys.argv[4], per_device_train_batch_size=8, gradient_accumulation_steps=8, num_generations=8, max_completion_length=128,
                    max_steps=steps, use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1,
                    learning_rate=1e-5, beta=0.0, disable_tqdm=True, generation_kwargs={"min_new_tokens": 128})
def reward(completions, **kwargs): return [float(len(set(c)) % 7) for c in completions]
trainer = GRPOTrainer(AutoModelForCausalLM.from_pretrained(model, dtype="float32"), reward_funcs=reward, args=config, processing_class=tokenizer,
                      callbacks=[Times()], train_dataset=Dataset.from_list([{"prompt": r["question"]} for r in data]))
trainer.train()
ends = Times.ends
print("RESULT " + json.dumps({"seconds": (ends[-1] - ends[0]) / (len(ends) - 1),
                              "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def temper(model, rows, steps, folder, settings=()):
    subprocess.check_call([peers.TEMPER, "grpo", f"output_dir={folder}/temper", f"model.path={model}", f"data.train={rows}",
                           "data.columns={prompt: question}", f"train.max_steps={steps}", "rl.beta=0",
                           "rollout.max_new_tokens=128", "rollout.ignore_eos=true", "rewards=[{name: repetition}]", "optimizer.learning_rate=1e-5",
                           "metrics.sinks=[jsonl]", *settings])
    rows = [json.loads(line) for line in open(f"{folder}/temper/metrics.jsonl")]
    timed = rows[1:]
    mean = lambda name: sum(r[name] for r in timed) / len(timed)
    return {"seconds": mean("step_seconds"), "rollout": mean("rollout_seconds"), "train": mean("train_seconds"),
            "peak_memory_bytes": rows[-1]["peak_memory_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--rows", default=str(peers.GSM8K), help="rows with question and answer")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    model = peers.model()
    with tempfile.TemporaryDirectory() as folder:
        ours = temper(model, args.rows, args.steps, folder)
        theirs = peers.run_python(args.python, TRL, model, args.rows, args.steps, f"{folder}/trl")
    print(f"  Temper {ours['seconds']:6.1f} s a step (rollout {ours['rollout']:.1f}, training {ours['train']:.1f})  {ours['peak_memory_bytes'] / 1e9:.2f} GB")
    if theirs:
        print(f"  TRL    {theirs['seconds']:6.1f} s a step  {theirs['peak_memory_bytes'] / 1e9:.2f} GB")
        print(f"  speed {theirs['seconds'] / ours['seconds']:.1f} times, memory {100 * ours['peak_memory_bytes'] / theirs['peak_memory_bytes']:.0f} %")


if __name__ == "__main__":
    main()
