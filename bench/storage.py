#!/usr/bin/env python3
"""Frozen weights in float32, int8 and nf4: training an adapter over them, and decoding, in one run; QLoRA beside PEFT
with bitsandbytes.

usage: bench/storage.py [--python PATH] [--rows FILE] [--steps N] [--no-peer] [--only train|decode]

The model has 0.3 billion parameters of random weights (bench/config_0.3b.json). Training: rows of GSM8K, 8 a step, at
most 1,024 tokens a pass, rates leave the first step out, memory is the peak of the process; `full` trains all weights.
Decoding: 64 new tokens of 1 and of 64 prompts. Machines that do other work at the same time give numbers that mean
nothing.
"""
import argparse
import json
import subprocess
import tempfile
import time

import peers

BATCH = 8

PEER = r"""
import json, resource, sys, time
start = time.time()
model_dir, rows, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
tokenizer = AutoTokenizer.from_pretrained(model_dir)
config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
model = AutoModelForCausalLM.from_pretrained(model_dir, quantization_config=config, dtype=torch.float32, device_map="cpu")
model = get_peft_model(prepare_model_for_kbit_training(model, use_gradient_checkpointing=False), LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
data = [json.loads(line) for line in open(rows)][: 8 * steps]
times, losses, tokens = [], [], []
for step in range(steps):
    begin = time.time()
    ids = [(tokenizer(r["question"])["input_ids"], tokenizer(r["answer"])["input_ids"] + [tokenizer.eos_token_id or 2]) for r in data[8 * step: 8 * step + 8]]
    longest = max(len(p) + len(c) for p, c in ids)
    pad = lambda row, value: row + [value] * (longest - len(row))
    loss = model(input_ids=torch.tensor([pad(p + c, 0) for p, c in ids]), attention_mask=torch.tensor([pad([1] * len(p + c), 0) for p, c in ids]),
                 labels=torch.tensor([pad([-100] * len(p) + c, -100) for p, c in ids])).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); optimizer.zero_grad()
    times.append(time.time() - begin); losses.append(loss.item()); tokens.append(sum(len(p) + len(c) for p, c in ids))
print("RESULT " + json.dumps({"tokens_per_second": sum(tokens[1:]) / sum(times[1:]), "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                              "first_step_seconds": times[0], "losses": losses}))
"""


def show(name, r, losses):
    print(f"  {name:22} {r['tokens_per_second']:7.0f} tokens/s  {r['peak_memory_bytes'] / 1e9:5.2f} GB  loss "
          + " ".join(f"{x:.4f}" for x in losses), flush=True)


def training(args, model):
    print(f"training, {args.steps} steps of {BATCH} rows")
    runs = {"full": [], "LoRA float32": ["adapter.method=lora"], "LoRA bfloat16": ["adapter.method=lora", "model.storage=bfloat16"],
            "LoRA int8": ["adapter.method=lora", "model.storage=int8"], "QLoRA nf4": ["adapter.method=qlora"]}
    for name, keys in runs.items():
        with tempfile.TemporaryDirectory() as directory:
            ours = peers.temper("sft", f"{directory}/run", f"model.path={model}", f"data.train={args.rows}",
                                "data.columns={prompt: question, completion: answer}", f"train.batch_size={BATCH}", f"train.max_steps={args.steps}",
                                "train.micro_batch_tokens=1024",
                                "optimizer.learning_rate=1e-3", "optimizer.schedule=constant", *keys, untimed=1)
            show(name, ours, ours["losses"]["loss"])
    if not args.no_peer:
        peer = peers.run_python(args.python, PEER, model, args.rows, args.steps)
        if peer:
            show("PEFT + bitsandbytes", peer, peer["losses"])


def decoding(args, model):
    print("decoding, 64 new tokens")
    prompts = [json.loads(line)["question"] for _, line in zip(range(64), open(args.rows))]
    with tempfile.TemporaryDirectory() as directory:
        for storage in ("float32", "bfloat16", "int8", "nf4"):
            for count in (1, 64):
                with open(f"{directory}/prompts.jsonl", "w") as f:
                    f.writelines(json.dumps({"prompt": p}) + "\n" for p in prompts[:count])
                seconds = {}
                for new in (1, 65):  # the difference is decoding alone
                    best = 1e9
                    for _ in range(2):
                        start = time.time()
                        subprocess.check_call([peers.TEMPER, "generate", "--model", model, "--storage", storage, "--input", f"{directory}/prompts.jsonl",
                                               "--output", f"{directory}/out.jsonl", "--max-new-tokens", str(new), "--ignore-eos"], stderr=subprocess.DEVNULL)
                        best = min(best, time.time() - start)
                    seconds[new] = best
                print(f"  {storage:9} {count:3} sequences {64 * count / (seconds[65] - seconds[1]):7.1f} new tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--rows", default=str(peers.GSM8K), help="rows with question and answer")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only", choices=("train", "decode"))
    args = parser.parse_args()
    model = str(peers.ROOT / "models/bench-0.3b")
    peers.model(model, peers.ROOT / "bench/config_0.3b.json")
    if args.only != "decode":
        training(args, model)
    if args.only != "train":
        decoding(args, model)


if __name__ == "__main__":
    main()
