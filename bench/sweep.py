#!/usr/bin/env python3
"""The processor time of a sweep of eight LoRA runs over that of the same runs alone.

usage: bench/sweep.py [--model DIR] [--rows FILE] [--batch N] [--steps N] [SETTING...]

Without --rows the runs train on rows of 32 tokens. Runs differ in learning rate and seed. Counted are whole processes,
what they do before the first step included (`whole`), and all but that (`steps`: the difference to runs of one step).
Weights in final/ must be the same bytes.
"""
import argparse
import json
import pathlib
import random
import resource
import subprocess
import tempfile

import peers

RATES, SEEDS = ("1e-4", "2e-4", "5e-4", "1e-3"), ("0", "1")


def cpu(*command):
    """Processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.check_call(list(map(str, command)), stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak(metrics):
    return max(json.loads(line)["peak_memory_bytes"] for line in open(metrics))


def measure(folder, steps, settings):
    """Seconds of the sweep and of the runs alone, and the peak memory of both, in bytes."""
    common = [*settings, f"train.max_steps={steps}", "adapter.method=lora", "metrics.sinks=[jsonl]"]
    together = cpu(peers.TEMPER, "sweep", "sft", *common, f"output_dir={folder}/sweep", "--seeds", ",".join(SEEDS),
                   "--over", "optimizer.learning_rate=" + ",".join(RATES))
    apart, peaks = 0, []
    for rate in RATES:
        for seed in SEEDS:
            name = f"learning_rate={rate},seed={seed}"
            joint, alone = pathlib.Path(folder, "sweep", name), pathlib.Path(folder, "alone", name)
            apart += cpu(peers.TEMPER, "sft", *common, f"output_dir={alone}", f"optimizer.learning_rate={rate}",
                         f"seed={seed}")
            peaks.append((peak(joint / "metrics.jsonl"), peak(alone / "metrics.jsonl")))
            weights = [(run / "final/adapter_model.safetensors").read_bytes() for run in (joint, alone)]
            assert weights[0] == weights[1], name
    return together, apart, *map(max, zip(*peaks))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None, help="the benchmark model, made where it is not given")
    parser.add_argument("--rows", default=None, help="with `question` and `answer`")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("settings", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = args.rows
        if not rows:
            rows, draw = f"{folder}/rows.jsonl", random.Random(1)
            with open(rows, "w") as f:
                for _ in range(1000):
                    f.write(json.dumps({"input_ids": [draw.randrange(10, 8000) for _ in range(32)]}) + "\n")
        settings = [f"model.path={args.model or peers.model()}", f"data.train={rows}", f"train.batch_size={args.batch}",
                    *(["data.columns={prompt: question, completion: answer}"] if args.rows else []), *args.settings]
        first = measure(f"{folder}/1", 1, settings)
        whole = measure(f"{folder}/{args.steps}", args.steps, settings)
    print(f"batch {args.batch}, {args.steps} steps {' '.join(args.settings)}")
    for what, less in (("whole", (0, 0)), ("steps", first)):
        joint, alone = whole[0] - less[0], whole[1] - less[1]
        print(f"  {what}  sweep {joint:7.1f} s  alone {alone:7.1f} s  {joint / alone:.2f}")
    print(f"  peak memory  sweep {whole[2] / 1e9:.2f} GB  alone {whole[3] / 1e9:.2f} GB")


main()
