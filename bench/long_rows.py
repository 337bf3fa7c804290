#!/usr/bin/env python3
"""LoRA and QLoRA of one model on long rows, by Temper (with and without train.offload) and by TRL (SDPA, gradient
checkpointing), one row a step.

usage: bench/long_rows.py [--python PATH] [--model DIR] [--tokens N,N] [--only NAME,NAME] [--steps N]

Rates leave the first step out. GFLOP/s count what is multiplied, recomputation included: 6 a token for each weight of a
linear layer (4 for the head: forward, and its input's gradient), and 9 T a layer and column for attention over T tokens (causal halves of two
products forward, again, and of five in the backward pass). Memory is the process's peak. With --steps 1 the only step counts.
"""
import argparse
import json
import pathlib
import random
import tempfile

import peers

PEER = peers.PRELUDE + r"""
model, rows, steps, directory = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
data = [json.loads(line) for line in open(rows)]
config = SFTConfig(output_dir=directory, per_device_train_batch_size=1, max_steps=steps, max_length=None, use_cpu=True, bf16=False,
                   gradient_checkpointing=True, save_strategy="no", report_to="none", logging_steps=1, learning_rate=1e-4,
                   disable_tqdm=True, lr_scheduler_type="constant")
in_order(SFTTrainer)
times = step_ends()
model = AutoModelForCausalLM.from_pretrained(model, dtype="float32", attn_implementation="sdpa")
trainer = SFTTrainer(model, args=config, processing_class=AutoTokenizer.from_pretrained(sys.argv[1]), callbacks=[times],
                     train_dataset=Dataset.from_list(data), peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
begin = now()
trainer.train()
ends = ([begin] if steps == 1 else []) + times.ends
result(seconds=(ends[-1][0] - ends[0][0]) / (len(ends) - 1), cpu=(ends[-1][1] - ends[0][1]) / (len(ends) - 1),
       losses=[row["loss"] for row in trainer.state.log_history if "loss" in row])
"""


def flops(config, tokens):
    c = json.loads((pathlib.Path(config) / "config.json").read_text())
    h, layers, heads, kv = (c[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"))
    width = c.get("head_dim", h // heads)
    block = h * width * (2 * heads + 2 * kv) + 3 * h * c["intermediate_size"]
    return tokens * (6 * layers * block + 4 * h * c["vocab_size"]) + layers * 9 * tokens * tokens * heads * width


def temper(model, rows, steps, directory, *settings):
    ours = peers.temper("sft", directory, f"model.path={model}", f"data.train={rows}", "data.max_length=10000000", "train.batch_size=1",
                        f"train.max_steps={steps}", "train.recompute=blocks", "optimizer={learning_rate: 1e-4, schedule: constant}",
                        *settings, untimed=min(1, steps - 1))
    row = ours["tokens"][0]
    return {"seconds": row / ours["tokens_per_second"], "peak_memory_bytes": ours["peak_memory_bytes"], "losses": ours["losses"]["loss"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--model", default=None, help="made where it is not given")
    parser.add_argument("--tokens", default="1024,4096,16384")
    parser.add_argument("--only", default="lora,offload,qlora,trl")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    model = args.model or peers.model()
    lora = ["adapter={method: lora, rank: 16, alpha: 32}"]
    for tokens in map(int, args.tokens.split(",")):
        rng = random.Random(tokens)
        with tempfile.TemporaryDirectory() as directory:
            rows = f"{directory}/rows.jsonl"
            with open(rows, "w") as file:
                for _ in range(args.steps):
                    print(json.dumps({"input_ids": [rng.randrange(100, 8000) for _ in range(tokens)]}), file=file)
            for name in args.only.split(","):
                if name == "trl":
                    found = peers.run_python(args.python, PEER, model, rows, args.steps, f"{directory}/trl")
                else:
                    settings = ["adapter={method: qlora, rank: 16, alpha: 32}"] if name == "qlora" else lora
                    found = temper(model, rows, args.steps, f"{directory}/{name}", *settings, *(["train.offload=all"] if name == "offload" else []))
                if found:
                    print(f"{tokens:7} tokens  {name:8} {tokens / found['seconds']:7.0f} tokens/s  {flops(model, tokens) / found['seconds'] / 1e9:6.1f} GFLOP/s  "
                          f"{found['peak_memory_bytes'] / 1e6:7.0f} MB  loss {found['losses'][0]:.6f} to {found['losses'][-1]:.6f}", flush=True)


main()
