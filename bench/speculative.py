#!/usr/bin/env python3
"""Sampling with speculative decoding and without, of one model in one run: new tokens a second, and that no byte of the
output differs.

usage: bench/speculative.py [--model DIR] [--steps 200] [--new 128] [--repeats 2] [--cases NAME,..]

Without --model, the benchmark model is first trained on GSM8K for --steps steps (models/bench-gsm8k, kept). Cases:
groups of 8 samples of one prompt and of 8, as GRPO draws them, at several temperatures; one sequence, greedy and
sampled; 64 prompts with one sample each; and what drafting cannot help, the model of random weights at temperature 1.
Prompts are GSM8K's questions. Times are the program's own time of sampling, prompts included, the better of --repeats
runs, which alternate.
"""
import argparse
import json
import subprocess
import tempfile

import peers

# name: prompts, samples of each, temperature, whether the model was trained
CASES = {
    "1 prompt x 1, greedy": (1, 1, 0, True),
    "1 prompt x 1, temperature 1": (1, 1, 1, True),
    "1 prompt x 8, temperature 1": (1, 8, 1, True),
    "1 prompt x 8, temperature 0.3": (1, 8, 0.3, True),
    "8 prompts x 8, temperature 1": (8, 8, 1, True),
    "8 prompts x 8, temperature 0.3": (8, 8, 0.3, True),
    "64 prompts x 1, greedy": (64, 1, 0, True),
    "64 prompts x 1, temperature 1": (64, 1, 1, True),
    "random weights, 1 x 1": (1, 1, 1, False),
    "random weights, 1 x 8": (1, 8, 1, False),
    "random weights, 8 x 8": (8, 8, 1, False),
}


def rows_of(count):
    for line in open(peers.GSM8K):
        row = json.loads(line)
        yield {"prompt": f"Question: {row['question']}\nAnswer:", "completion": " " + row["answer"]}
        count -= 1
        if count == 0:
            return


def trained(steps):
    directory = peers.ROOT / "models/bench-gsm8k"
    if not (directory / "config.json").exists():
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/rows.jsonl", "w") as f:
                f.writelines(json.dumps(row) + "\n" for row in rows_of(7000))
            subprocess.run([peers.TEMPER, "sft", f"output_dir={folder}/run", f"model.path={peers.model()}", f"data.train={folder}/rows.jsonl",
                            f"train.max_steps={steps}", "train.batch_size=16", "train.micro_batch_tokens=4096", "optimizer.learning_rate=1e-3",
                            "optimizer.warmup_steps=10"], check=True)
            subprocess.run(["cp", "-r", f"{folder}/run/final", directory], check=True)
    return str(directory)


def sample(model, prompts, samples, temperature, new, speculative, folder):
    with open(f"{folder}/in.jsonl", "w") as f:
        f.writelines(json.dumps({"prompt": row["prompt"]}) + "\n" for row in list(rows_of(7400))[-prompts:])
    text = subprocess.run([peers.TEMPER, "generate", "--model", model, "--input", f"{folder}/in.jsonl", "--output", f"{folder}/out.jsonl",
                           "--num-samples", str(samples), "--max-new-tokens", str(new), "--temperature", str(temperature), "--speculative", speculative,
                           "--timings"], check=True, capture_output=True, text=True).stderr
    said = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    return {name: float(value) for name, value in said.items()}, open(f"{folder}/out.jsonl").read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cases", default=",".join(f"{i}" for i in range(len(CASES))), help="by number")
    args = parser.parse_args()
    models = {True: args.model or trained(args.steps), False: peers.model()}
    print(f"{'':32} {'off':>8} {'auto':>8}  new tokens/s; drafted a token, accepted of these")
    with tempfile.TemporaryDirectory() as folder:
        for number in args.cases.split(","):
            name, (prompts, samples, temperature, is_trained) = list(CASES.items())[int(number)]
            best, texts = {}, {}
            for _ in range(args.repeats):
                for speculative in ("off", "auto"):
                    said, texts[speculative] = sample(models[is_trained], prompts, samples, temperature, args.new, speculative, folder)
                    if speculative not in best or said["sampling_seconds"] < best[speculative]["sampling_seconds"]:
                        best[speculative] = said
            assert texts["off"] == texts["auto"], name
            rate = {s: best[s]["new_tokens"] / best[s]["sampling_seconds"] for s in best}
            auto = best["auto"]
            print(f"{name:32} {rate['off']:8.0f} {rate['auto']:8.0f}  {rate['auto'] / rate['off']:5.2f} times  "
                  f"{auto['drafted_tokens'] / auto['new_tokens']:5.2f}  {auto['accepted_tokens'] / max(1, auto['drafted_tokens']):5.2f}", flush=True)


main()
