#!/usr/bin/env python3
"""Supervised fine-tuning of one model on the same rows by Temper and by TRL, in one run.

usage: bench/sft.py [--python PATH] [--model DIR] [--rows FILE] [--steps N] [--arithmetic exact|fast|amx]
                    [--peer-dtype float32|bfloat16]

The model is a directory that `temper init` made, the rows are GSM8K's (question and answer). Rates leave the first two
steps out; tokens are the rows' own, padding is not counted; memory is the peak of the process. Machines that do other
work at the same time give numbers that mean nothing.
"""
import argparse
import tempfile

import peers

BATCH = 16

PEER = peers.PRELUDE + r"""
model, rows, steps, lora = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "lora"
bf16 = sys.argv[6] == "bfloat16"
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
data = [json.loads(line) for line in open(rows)][: 16 * steps]
tokenizer = AutoTokenizer.from_pretrained(model)
count = [len(tokenizer(r["question"])["input_ids"]) + len(tokenizer(r["answer"])["input_ids"]) + 1 for r in data]
count = [sum(count[i:i + 16]) for i in range(0, len(count), 16)]
config = SFTConfig(output_dir=sys.argv[5], per_device_train_batch_size=16, max_steps=steps, max_length=1024, use_cpu=True, bf16=bf16,
                   gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1, learning_rate=1e-3,
                   disable_tqdm=True, dataloader_drop_last=False)
in_order(SFTTrainer)
times = step_ends()
trainer = SFTTrainer(AutoModelForCausalLM.from_pretrained(model, dtype="float32"), args=config, processing_class=tokenizer, callbacks=[times],
                     train_dataset=Dataset.from_list([{"prompt": r["question"], "completion": r["answer"]} for r in data]),
                     peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if lora else None)
trainer.train()
result(**rates(times.ends, count),
       losses={"loss": [row["loss"] for row in trainer.state.log_history if "loss" in row]})
"""


def temper(model, rows, steps, lora, directory, arithmetic):
    return peers.temper("sft", f"{directory}/temper", f"model.path={model}", f"data.train={rows}",
                        "data.columns={prompt: question, completion: answer}", f"train.batch_size={BATCH}", f"train.max_steps={steps}",
                        "optimizer.learning_rate=1e-3", "optimizer.schedule=linear", *(["adapter.method=lora"] if lora else []),
                        *(["model.dtype=bfloat16", f"model.arithmetic={arithmetic}"] if arithmetic != "exact" else []))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--model", default=None, help="made where it is not given")
    parser.add_argument("--rows", default=str(peers.GSM8K))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--arithmetic", choices=["exact", "fast", "amx"], default="exact", help="Temper's; fast and amx with bfloat16 weights")
    parser.add_argument("--peer-dtype", choices=["float32", "bfloat16"], default="float32", help="what TRL multiplies in (bfloat16: autocast)")
    args = parser.parse_args()
    model = args.model or peers.model()
    for lora in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            ours = temper(model, args.rows, args.steps, lora, directory, args.arithmetic)
            peer = peers.run_python(args.python, PEER, model, args.rows, args.steps, "lora" if lora else "full", f"{directory}/trl", args.peer_dtype)
        peers.report(f"{'LoRA rank 16' if lora else 'all weights'}, Temper {args.arithmetic}, TRL in {args.peer_dtype}", "TRL", ours, peer)


main()
