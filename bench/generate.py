#!/usr/bin/env python3
"""Sampling of one model by Temper, Hugging Face generate and llama.cpp, in one run, float32.

usage: bench/generate.py [--python PATH] [--llama-python PATH]

64 sequences and one, prompts of 64 tokens, 128 new tokens each, no end token. New tokens a second; loading is not counted. Machines
that do other work at the same time give numbers that mean nothing.
"""
import argparse
import json
import os
import random
import subprocess
import tempfile
import time

import peers

PROMPT, NEW = 64, 128

HUGGING_FACE = r"""
import json, sys, time, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="float32").eval()
rows = json.load(open(sys.argv[2]))
out = {}
for count in (64, 1):
    ids = torch.tensor(rows[:count])
    best = 0
    for _ in range(2):
        start = time.time()
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=128, min_new_tokens=128, pad_token_id=0)
        best = max(best, count * 128 / (time.time() - start))
    out[str(count)] = best
print("RESULT " + json.dumps(out))
"""

# The model as GGUF, by the gguf package; then llama.cpp's own batches of sequences with greedy choice on the last logits.
LLAMA = r"""
import ctypes, json, sys, time
import numpy as np
import gguf, llama_cpp
from safetensors.numpy import load_file
model, rows, path = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3]
c = json.load(open(model + "/config.json"))
w = gguf.GGUFWriter(path, "qwen3")
w.add_block_count(c["num_hidden_layers"]); w.add_context_length(c["max_position_embeddings"]); w.add_embedding_length(c["hidden_size"])
w.add_feed_forward_length(c["intermediate_size"]); w.add_head_count(c["num_attention_heads"]); w.add_head_count_kv(c["num_key_value_heads"])
w.add_key_length(c["head_dim"]); w.add_value_length(c["head_dim"]); w.add_layer_norm_rms_eps(c["rms_norm_eps"])
w.add_rope_freq_base(c["rope_parameters"]["rope_theta"]); w.add_vocab_size(c["vocab_size"]); w.add_tokenizer_model("no_vocab"); w.add_file_type(0)
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, c["num_hidden_layers"])
for name, value in load_file(model + "/model.safetensors").items():
    w.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), value.astype(np.float32))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
llama_cpp.llama_backend_init()
m = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
vocabulary = c["vocab_size"]
def run(count):
    p = llama_cpp.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max, p.n_threads, p.n_threads_batch = count * 192, 4096, 512, count, 2, 2
    p.kv_unified = True
    p.type_k = p.type_v = llama_cpp.GGML_TYPE_F32
    ctx = llama_cpp.llama_init_from_model(m, p)
    batch = llama_cpp.llama_batch_init(count * 64, 0, 1)
    def decode(entries):
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        assert llama_cpp.llama_decode(ctx, batch) == 0
    start = time.time()
    decode([(t, i, s, i == 63) for s in range(count) for i, t in enumerate(rows[s])])
    last = [s * 64 + 63 for s in range(count)]
    for step in range(128):
        tokens = [int(np.argmax(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(ctx, i), (vocabulary,)))) for i in last]
        if step == 127: break
        decode([(t, 64 + step, s, True) for s, t in enumerate(tokens)])
        last = list(range(count))
    rate = count * 128 / (time.time() - start)
    llama_cpp.llama_free(ctx)
    return rate
print("RESULT " + json.dumps({str(n): max(run(n), run(n)) for n in (64, 1)}))
"""


def temper(model, rows, folder):
    """The time of 128 new tokens is that of a run with them less that of a run with none but the first."""
    out = {}
    for count in (64, 1):
        path = f"{folder}/prompts.jsonl"
        with open(path, "w") as f:
            f.writelines(json.dumps({"tokens": row}) + "\n" for row in rows[:count])
        best = 0
        for _ in range(2):
            start = time.time()
            text = subprocess.run([peers.TEMPER, "generate", "--model", model, "--input", path, "--output", f"{folder}/out.jsonl", "--max-new-tokens",
                                   str(NEW), "--ignore-eos", "--timings"], check=True, capture_output=True, text=True).stderr
            seconds = next(float(line.split()[1]) for line in text.splitlines() if line.startswith("sampling_seconds"))
            best = max(best, count * NEW / seconds)
        out[str(count)] = best
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--llama-python", default=None, help="a Python with llama-cpp-python and gguf, if that is another")
    args = parser.parse_args()
    model = peers.model()
    rng = random.Random(0)
    rows = [[rng.randrange(300, 8000) for _ in range(PROMPT)] for _ in range(64)]
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rows.json", "w") as f:
            json.dump(rows, f)
        results = {"Temper": temper(model, rows, folder)}
        results["Hugging Face"] = peers.run_python(args.python, HUGGING_FACE, model, f"{folder}/rows.json")
        results["llama.cpp"] = peers.run_python(args.llama_python or args.python, LLAMA, model, f"{folder}/rows.json", f"{folder}/model.gguf")
    print("new tokens a second           64 sequences   one sequence")
    for name, rate in results.items():
        if rate:
            print(f"  {name:26} {rate['64']:12.0f} {rate['1']:14.0f}")
            if name != "Temper":
                print(f"  {'Temper is faster by':26} {results['Temper']['64'] / rate['64']:11.1f}x {results['Temper']['1'] / rate['1']:13.1f}x")


main()
