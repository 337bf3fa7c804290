#!/usr/bin/env python3
"""Sampling of one model by Temper, Hugging Face generate and llama.cpp, in one run.

usage: bench/generate.py [--python PATH] [--llama-python PATH] [--sequences 64] [--new 128] [--storage
float32,bfloat16,bfloat16-fast,bfloat16-amx,nf4-amx,int8,nf4,Q8_0,Q4_K_M,Q4_0-integer] [--cache-dtype float16]
                         [--rounds 1] [--model large] [--no-hf]

64 sequences and one, prompts of 64 tokens, 128 new tokens each, no end token. New tokens a second, the better of two
runs; neither loading is counted nor what a process does once, in its first run: Hugging Face and llama.cpp sample twice
in one process, and Temper's time is that of two sets of prompts, one after the other, less that of one. --rounds N: N
times in turn; the best of each counts. --storage: how weights are kept (-fast, -amx, -integer: with that --arithmetic);
llama.cpp has F32, BF16, Q8_0 and Q4_0 for them, Hugging Face runs in float32 alone. Q8_0, Q4_0, Q4_K_M, .. (llama.cpp's
names of quantized files): both read the file that llama.cpp makes. With int8 and nf4 the embedding, which is also the
head, is in bfloat16; llama.cpp quantizes it as well (Q8_0, Q6_K).
--model large: 0.3 billion parameters (bench/config_0.3b.json) instead of 29 million; large-mixture: as many in 32
experts a layer, of which a token takes four (bench/config_mixture_0.3b.json); mixture, delta, ..: those of
bench/layers.py. llama.cpp reads the GGUF that Temper writes.
llama.cpp runs as it is fastest: a cache of its own for every sequence (kv_unified = false), keys and values in its
default type (F16), n_batch 8192, n_ubatch 512, a thread a core, tokens chosen by its own greedy sampler. Temper and
Hugging Face sample at temperature 1. Machines that do other work at the same time give numbers that mean little; rounds
help.
"""
import argparse
import json
import os
import random
import subprocess
import tempfile
import time

import layers
import peers

PROMPT = 64
LARGE = {"large": "0.3b", "large-mixture": "mixture-0.3b"}
LLAMA_SETTINGS = "kv_unified = false, F16 keys and values, n_batch 8192, n_ubatch 512, greedy sampler"

HUGGING_FACE = r"""
import json, sys, time, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="float32").eval()
rows, new = json.load(open(sys.argv[2])), int(sys.argv[3])
out = {}
for count in (len(rows), 1):
    ids = torch.tensor(rows[:count])
    best = 0
    for _ in range(2):
        start = time.time()
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=new, min_new_tokens=new, pad_token_id=0)
        best = max(best, count * new / (time.time() - start))
    out[str(count)] = best
print("RESULT " + json.dumps(out))
"""

# llama.cpp's own batches of sequences and its greedy sampler.
LLAMA = r"""
import json, os, sys, time
import llama_cpp
path, rows, new, types = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3]), sys.argv[4].split(",")
prompt = len(rows[0])
llama_cpp.llama_backend_init()
greedy = llama_cpp.llama_sampler_init_greedy()
def load(kind):
    file = path if kind == "F32" else f"{path.removesuffix('.gguf')}-{kind}.gguf"
    if not os.path.exists(file):
        q = llama_cpp.llama_model_quantize_default_params()
        q.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + kind)
        assert llama_cpp.llama_model_quantize(path.encode(), file.encode(), q) == 0
    return llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
def run(m, count):
    p = llama_cpp.llama_context_default_params()
    p.n_ctx, p.n_seq_max, p.n_batch, p.n_ubatch = count * (prompt + new), count, 8192, 512
    p.n_threads = p.n_threads_batch = os.cpu_count()
    p.kv_unified = False
    ctx = llama_cpp.llama_init_from_model(m, p)
    batch = llama_cpp.llama_batch_init(count * prompt, 0, 1)
    def decode(entries):
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        assert llama_cpp.llama_decode(ctx, batch) == 0
    start = time.time()
    decode([(t, i, s, i == prompt - 1) for s in range(count) for i, t in enumerate(rows[s])])
    last = [s * prompt + prompt - 1 for s in range(count)]
    for step in range(new):
        tokens = [llama_cpp.llama_sampler_sample(greedy, ctx, i) for i in last]
        if step == new - 1: break
        decode([(t, prompt + step, s, True) for s, t in enumerate(tokens)])
        last = range(count)
    rate = count * new / (time.time() - start)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(ctx)
    return rate
out = {}
for kind in types:
    m = load(kind)
    out[kind] = {str(n): max(run(m, n), run(m, n)) for n in (len(rows), 1)}
    llama_cpp.llama_model_free(m)
print("RESULT " + json.dumps(out))
"""
# Temper's storage formats, and llama.cpp's of the same bits.
LLAMA_TYPES = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0", "nf4": "Q4_0"}


def llama_type(storage):
    name = storage.partition("-")[0]
    return LLAMA_TYPES.get(name, name)


def temper(model, rows, folder, new, storage, cache, flags=()):
    """The program's own time of sampling, prompts included, without loading and what is done once."""
    rest = "float32" if storage == "float32" else "bfloat16"
    storage, _, arithmetic = storage.partition("-")
    if storage not in LLAMA_TYPES:
        model, storage = f"{folder}/gguf/model-float32-{storage}.gguf", "file"

    def seconds(some, at_once):
        path = f"{folder}/prompts.jsonl"
        with open(path, "w") as f:
            f.writelines(json.dumps({"tokens": row}) + "\n" for row in some)
        text = subprocess.run([peers.TEMPER, "generate", "--model", model, "--input", path, "--output", f"{folder}/out.jsonl", "--max-new-tokens",
                               str(new), "--ignore-eos", "--timings", "--max-batch", str(at_once), "--storage", storage, "--dtype", rest,
                               "--arithmetic", arithmetic or "exact", "--cache-dtype", cache, *flags],
                              check=True, capture_output=True, text=True).stderr
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("sampling_seconds"))

    out = {}
    for count in (len(rows), 1):
        # Other tokens, so that no prompt is known.
        both = rows[:count] + [row[::-1] for row in rows[:count]]
        once, twice = (min(seconds(some, count) for _ in range(2)) for some in (both[:count], both))
        out[str(count)] = count * new / (twice - once)
    return out


def large(name):
    return peers.model(str(peers.ROOT / f"models/bench-{name}"), peers.ROOT / f"bench/config_{name.replace('-', '_')}.json")


def prompts(count):
    rng = random.Random(0)
    return [[rng.randrange(300, 8000) for _ in range(PROMPT)] for _ in range(count)]


def better(old, new):
    """The higher rates of two results, which are nested alike; either may be missing."""
    if not old or not new:
        return old or new
    return {key: better(old[key], value) if isinstance(value, dict) else max(old[key], value) for key, value in new.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--llama-python", default=None, help="a Python with llama-cpp-python and gguf, if that is another")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--new", type=int, default=128, help="new tokens of a sequence")
    parser.add_argument("--storage", default="float32")
    parser.add_argument("--cache-dtype", default="float32", help="Temper's --cache-dtype; float16 is what llama.cpp keeps keys and values in")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--model", choices=["small", *LARGE, *layers.MODELS], default="small", help="29 million parameters, 0.3 billion, or one of bench/layers.py")
    parser.add_argument("--no-hf", action="store_true", help="without Hugging Face")
    args = parser.parse_args()
    storages = args.storage.split(",")
    rows = prompts(args.sequences)
    many = str(args.sequences)

    def show(name, rate):
        print(f"  {name:26} {rate[many]:12.0f} {rate['1']:14.1f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model = peers.model() if args.model == "small" else large(LARGE[args.model]) if args.model in LARGE else layers.make(folder, args.model)
        inputs, gguf = f"{folder}/rows.json", f"{folder}/gguf/model-float32.gguf"
        subprocess.run([peers.TEMPER, "export", "--model", model, "--output", f"{folder}/gguf", "--format", "gguf", "--dtype", "float32"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(inputs, "w") as f:
            json.dump(rows, f)
        ours, hugging_face, llama = {}, {}, {}
        types = ",".join(dict.fromkeys(map(llama_type, storages)))
        for _ in range(args.rounds):
            llama = better(llama, peers.run_python(args.llama_python or args.python, LLAMA, gguf, inputs, args.new, types))
            if not llama and any(storage.partition("-")[0] not in LLAMA_TYPES for storage in storages):
                parser.exit(1, "quantized files are made by llama.cpp, which did not run\n")
            ours = better(ours, {storage: temper(model, rows, folder, args.new, storage, args.cache_dtype) for storage in storages})
            if not args.no_hf:
                hugging_face = better(hugging_face, peers.run_python(args.python, HUGGING_FACE, model, inputs, args.new))
    found = [("Hugging Face", "float32", hugging_face)]
    found += [(f"llama.cpp {llama_type(storage)}", storage, llama and llama[llama_type(storage)]) for storage in storages]
    print(f"new tokens a second           {many:>3} sequences   one sequence")
    for storage, rate in ours.items():
        show(f"Temper {storage}", rate)
    for name, storage, rate in found:
        if rate and storage in ours:
            show(name, rate)
            print(f"  {f'Temper {storage} by':26} {ours[storage][many] / rate[many]:11.2f}x {ours[storage]['1'] / rate['1']:13.2f}x")
    print(f"  (llama.cpp: {LLAMA_SETTINGS})")


if __name__ == "__main__":
    main()
