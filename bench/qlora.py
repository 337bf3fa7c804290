#!/usr/bin/env python3
"""QLoRA (NF4, rank 16, all linear layers) of one model on the same rows by Temper and by PEFT with bitsandbytes.

usage: bench/qlora.py [--size 1.5b|7b] [--python PATH] [--steps N] [--batch N] [--arithmetic exact|fast|amx|integer]
                      [--compute-dtype float32|bfloat16] [--no-peer] [--recompute] [--base FILE.gguf]

The models are Qwen3's with the widths of Qwen2.5-1.5B and -7B and random weights, saved in bfloat16 (3 and 15 GB in
models/).
--base: Temper trains on this file instead, such as the same model in Q4_K (`temper export --format gguf`, then
llama.cpp's quantizer).
--arithmetic is Temper's of the embedding and the head, --compute-dtype what bitsandbytes multiplies in. Both sides
keep their activations; --recompute: both compute them again in the backward pass (gradient checkpointing).
"""
import argparse
import json
import os
import subprocess
import tempfile

import peers

SHAPES = {"1.5b": dict(hidden_size=1536, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2, intermediate_size=8960,
                       vocab_size=151936, tie_word_embeddings=True),
          "7b": dict(hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4, intermediate_size=18944,
                     vocab_size=152064, tie_word_embeddings=False)}

PEER = peers.PRELUDE + r"""
model, rows, steps, batch, dtype, recompute, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6] == "True", sys.argv[7]
import torch
from datasets import Dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
data = [json.loads(line) for line in open(rows)][: batch * steps]
tokenizer = AutoTokenizer.from_pretrained(model)
count = [len(tokenizer(r["question"])["input_ids"]) + len(tokenizer(r["answer"])["input_ids"]) + 1 for r in data]
count = [sum(count[i:i + batch]) for i in range(0, len(count), batch)]
dtype = getattr(torch, dtype)
base = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, device_map="cpu", quantization_config=BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype))
config = SFTConfig(output_dir=out, per_device_train_batch_size=batch, max_steps=steps, max_length=1024, use_cpu=True, bf16=dtype == torch.bfloat16,
                   gradient_checkpointing=recompute, save_strategy="no", report_to="none", logging_steps=1, learning_rate=1e-4, disable_tqdm=True)
in_order(SFTTrainer)
times = step_ends()
trainer = SFTTrainer(base, args=config, processing_class=tokenizer, callbacks=[times],
                     train_dataset=Dataset.from_list([{"prompt": r["question"], "completion": r["answer"]} for r in data]),
                     peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
trainer.train()
result(**rates(times.ends, count), losses={"loss": [row["loss"] for row in trainer.state.log_history if "loss" in row]})
"""


def model(size):
    path = peers.ROOT / "models" / f"qwen3-{size}"
    if not path.exists():
        config = json.load(open(peers.BENCH / "config.json"))
        config.update(SHAPES[size], head_dim=128)
        for key in ("layer_types", "max_window_layers"):
            config.pop(key)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config, file)
            file.flush()
            subprocess.check_call([peers.TEMPER, "init", "--config", file.name, "--tokenizer", peers.BENCH, "--dtype", "bfloat16", "--seed", "1",
                                   "--output", path])
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SHAPES, default="1.5b")
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--rows", default=str(peers.GSM8K))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--arithmetic", choices=["exact", "fast", "amx", "integer"], default="exact")
    parser.add_argument("--compute-dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--base", help="a quantized base of Temper's own")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ours = peers.temper("sft", f"{directory}/temper", f"model.path={args.base or model(args.size)}", f"data.train={args.rows}",
                            "data.columns={prompt: question, completion: answer}", f"train.batch_size={args.batch}",
                            f"train.max_steps={args.steps}", "optimizer.learning_rate=1e-4", "optimizer.schedule=linear", "adapter.method=qlora",
                            "model.dtype=bfloat16", f"model.arithmetic={args.arithmetic}", *(["train.recompute=blocks"] if args.recompute else []))
        peer = None if args.no_peer else peers.run_python(args.python, PEER, model(args.size), args.rows, args.steps, args.batch, args.compute_dtype,
                                                          args.recompute, f"{directory}/peft")
    peers.report(f"QLoRA, {args.size}, Temper {args.arithmetic}, bitsandbytes in {args.compute_dtype}", "PEFT", ours, peer)


main()
