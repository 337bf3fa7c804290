#!/usr/bin/env python3
"""The backends native and aten beside each other on the CPU: speed, and the learning curves of the same runs.

usage: bench/backends.py [--rows FILE] [--steps N]
       bench/backends.py --curves DEMO [--output FOLDER] [--seeds N]

Speed: supervised fine-tuning, a GRPO step and sampling of the benchmark model, native with arithmetic exact, with fast
(bfloat16 weights), and aten. Each is run twice, in turn; the better one counts.

Curves: sft, dpo and grpo as configs/ has them, on the model and rows that `make demo` left in the directory DEMO. Draws
the loss or the reward of both backends over each other, with several seeds, and prints where they part and how they end.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import generate
import grpo
import peers

SIDES = {"native": (), "native, fast": ("model.dtype=bfloat16", "model.arithmetic=fast"), "aten": ("model.backend=aten",)}
# Of a run: its verb, its settings, the metric that is drawn.
CURVES = {
    "sft": ("sft", ["data.train={demo}/sums.jsonl", "model.path={demo}/model", "train.max_steps=150", "train.batch_size=64",
                    "optimizer.learning_rate=2.0e-3", "optimizer.warmup_steps=10"], "loss"),
    "dpo": ("dpo", ["data.train={demo}/pairs.jsonl", "model.path={demo}/warm-up/final", "train.max_steps=100", "train.batch_size=32",
                    "optimizer.learning_rate=1.0e-5", "optimizer.warmup_steps=10"], "loss"),
    "grpo": ("grpo", ["data.train={demo}/sums.jsonl", "model.path={demo}/warm-up/final", "train.max_steps=400", "train.micro_batch_tokens=8192",
                      "rl.beta=0", "rl.prompts_per_rollout=32", "rl.group_size=8", "rollout.max_new_tokens=6", "rewards=[{{name: exact}}]",
                      "optimizer.learning_rate=4.0e-4", "optimizer.warmup_steps=20"], "reward_mean"),
}


def supervised(model, rows, steps, folder, settings):
    found = peers.temper("sft", folder, f"model.path={model}", f"data.train={rows}", "data.columns={prompt: question, completion: answer}",
                         "train.batch_size=16", f"train.max_steps={steps}", "optimizer.learning_rate=1e-3", *settings)
    return {"sft, tokens/s": found["tokens_per_second"], "sft, GB": found["peak_memory_bytes"] / 1e9}


def reinforced(model, rows, folder, settings):
    found = grpo.temper(model, rows, 3, folder, settings)
    return {"grpo, s a step": found["seconds"], "grpo, s of sampling": found["rollout"], "grpo, s of training": found["train"]}


def sampled(model, folder, side):
    rows = generate.prompts(64)
    flags = ["--backend", "aten"] if side == "aten" else []
    rate = generate.temper(model, rows, folder, 128, "bfloat16-fast" if "fast" in side else "float32", "float32", flags)
    return {"sampling 64 sequences, tokens/s": rate["64"], "sampling one sequence, tokens/s": rate["1"]}


def speeds(rows, steps):
    model = peers.model()
    found = {}
    for turn in range(2):
        for side, settings in SIDES.items():
            with tempfile.TemporaryDirectory() as folder:
                one = {**supervised(model, rows, steps, f"{folder}/sft", settings), **reinforced(model, rows, folder, settings),
                       **sampled(model, folder, side)}
            for name, value in one.items():
                best = max if "tokens/s" in name else min
                kept = found.setdefault(name, {})
                kept[side] = best(kept.get(side, value), value)
    print(f"{'':34}" + "".join(f"{side:>14}" for side in SIDES))
    for name, values in found.items():
        print(f"{name:34}" + "".join(f"{values[side]:14.2f}" for side in SIDES))


def train(name, backend, seed, demo, output):
    verb, settings, _ = CURVES[name]
    directory = f"{output}/{name}-{backend}-{seed}"
    subprocess.check_call([peers.TEMPER, verb, f"output_dir={directory}", f"model.backend={backend}", f"seed={seed}", "metrics.sinks=[jsonl]",
                           *[s.format(demo=demo) for s in settings]], stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in open(f"{directory}/metrics.jsonl")]


def curves(demo, output, seeds):
    plot = pathlib.Path(__file__).resolve().parent.parent / "tools/plot_runs.py"
    if not pathlib.Path(f"{demo}/pairs.jsonl").exists():
        subprocess.check_call([peers.TEMPER, "data", "pairs", "--input", f"{demo}/sums.jsonl", "--output", f"{demo}/pairs.jsonl"])
    for name, (_, _, metric) in CURVES.items():
        for seed in range(seeds):
            rows = {backend: train(name, backend, seed, demo, output) for backend in ("native", "aten")}
            apart = [abs(a[metric] - b[metric]) for a, b in zip(*rows.values())]
            rounding = [d > 1e-5 for d in apart]
            first = f"above 1e-5 from step {rounding.index(True) + 1} on" if any(rounding) else f"at most {max(apart):.1e}"
            last = len(apart) // 10
            mean = lambda backend: sum(row[metric] for row in rows[backend][-last:]) / last
            print(f"{name}, seed {seed}: {metric}, difference {first}; mean of the last {last} of {len(apart)} steps: native {mean('native'):.4f}, "
                  f"aten {mean('aten'):.4f}" + (f"; mismatch_kl at most {max(r['mismatch_kl'] for r in rows['aten']):.1e}"
                                                if "mismatch_kl" in rows["aten"][0] else ""), flush=True)
        subprocess.check_call([sys.executable, plot, "--metric", metric, "--output", f"{output}/{name}.svg",
                               *[f"{backend} {seed}={output}/{name}-{backend}-{seed}" for seed in range(seeds) for backend in ("native", "aten")]],
                              stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=str(peers.GSM8K), help="rows with question and answer")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--curves", metavar="DEMO", help="the directory of `make demo`")
    parser.add_argument("--output", default="runs/backends")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if args.curves:
        curves(args.curves, args.output, args.seeds)
    else:
        speeds(args.rows, args.steps)


main()
