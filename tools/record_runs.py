#!/usr/bin/env python3
"""Records what short training runs of a build leave, to the bit, and compares two such records.

usage: tools/record_runs.py --temper build/temper --output RECORD.json [--only NAME ...] [--environment NAME=VALUE ...]
       tools/record_runs.py --compare A.json B.json
       tools/record_runs.py --temper build/temper --targets [--only NAME ...]
       tools/record_runs.py --table TITLE=RECORD.json ...

A change that is meant to leave every number alone is checked with a record of the build before and one of the build
after. Every build is given the same commands, models (random weights from one seed) and rows. Recorded are the SHA-256
of every file in final/, every value of metrics.jsonl but times and memory, and the fields of the rollouts. Runs and keys
that only one of two records has are listed, and are differences as values that differ are: the exit status is then 1.

--targets compares one build with itself: under every set of vector instructions that the machine has (TEMPER_SIMD), with
a LibTorch without vectors (ATEN_CPU_CAPABILITY), and with a C library whose functions take other paths (GLIBC_TUNABLES).

A program for another machine is recorded under an emulator, with --emulator 'qemu-aarch64 -L .deps/arm64/sysroot' and a
long --timeout; runs of several ranks, which start themselves, are left out. --table prints digests of several records
side by side, in Markdown.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # beside this file, which may be where nobody writes
import target_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent

# No width is a multiple of a SIMD vector's.
ODD = {"hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20}
MODELS = {
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 331, "tie_word_embeddings": True, "eos_token_id": 2, **ODD},
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 331, "tie_word_embeddings": False, "eos_token_id": 2,
              **ODD, "hidden_size": 60, "head_dim": 10, "num_hidden_layers": 2},
    "gemma2": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "vocab_size": 331, "tie_word_embeddings": True, "eos_token_id": 2,
               "query_pre_attn_scalar": 17, "sliding_window": 11, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0,
               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_hidden_layers": 3, **ODD},
}


def write_rows(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


def make_inputs():
    """Models and rows, in the current directory."""
    golden = json.loads((ROOT / "tests/golden/tokenizers/qwen2.json").read_text())["tokenizer"]
    os.mkdir("tokenizer")
    pathlib.Path("tokenizer/tokenizer.json").write_text(json.dumps(golden))
    ids = {**golden["model"]["vocab"], **{token["content"]: token["id"] for token in golden["added_tokens"]}}
    models = {**MODELS, **target_runs.MODELS, "text": {**MODELS["qwen3"], "vocab_size": max(ids.values()) + 1, "eos_token_id": ids["<|end|>"]}}
    for name, config in models.items():
        pathlib.Path(f"{name}.json").write_text(json.dumps(config))

    rng = random.Random(0)
    pattern = [[5 + (7 * i + 3 * k) % 300 for k in range(10 + i % 23)] for i in range(40)]
    write_rows("rows.jsonl", [{"input_ids": row} for row in pattern])
    write_rows("masked.jsonl", [{"input_ids": row, "labels": [-100] * 4 + row[4:]} for row in ([rng.randrange(3, 331) for _ in range(12)] for _ in range(20))])
    write_rows("prompts.jsonl", [{"prompt_ids": row[:1 + i % 17], "row": i} for i, row in enumerate(pattern)])
    words = "the quick brown fox jumps over the lazy dog while it rains and they see".split()
    texts = [" ".join(rng.choice(words) for _ in range(3 + i % 5)) for i in range(24)]
    write_rows("texts.jsonl", [{"prompt": text, "completion": " " + text.upper()} for text in texts])
    write_rows("questions.jsonl", [{"prompt": text, "answer": "42"} for text in texts])
    # A batch of completions that no sampler of ours made: what a replay of it gives does not depend on sampling.
    write_rows("foreign.jsonl", [{"group": group, "prompt_tokens": pattern[group], "completion_tokens": [rng.randrange(3, 331) for _ in range(1 + (3 * sample + group) % 8)],
                                  "reward": round(rng.random(), 3)} for group in range(6) for sample in range(4)])
    target_runs.make_rows(write_rows)
    return models


SFT = ["sft", "data.train=rows.jsonl", "train.max_steps=5", "train.batch_size=6", "train.micro_batch_tokens=64", "optimizer.learning_rate=1.0e-2",
       "optimizer.warmup_steps=2", "optimizer.weight_decay=0.1", "seed=3", "metrics.sinks=[jsonl]"]
GRPO = ["grpo", "data.train=prompts.jsonl", "train.max_steps=3", "train.micro_batch_tokens=128", "optimizer.learning_rate=3.0e-3", "optimizer.schedule=constant",
        "rl.group_size=4", "rl.prompts_per_rollout=3", "rl.max_refills=2", "rollout.max_new_tokens=9", "rollout.temperature=0.9", "seed=3",
        "metrics.sinks=[jsonl]"]
# The share of even ids in a completion: something that sampling varies and training can raise.
EVEN_CODE = """import json, sys
for line in sys.stdin:
    ids = json.loads(line)["completion_tokens"]
    print(sum(i % 2 == 0 for i in ids) / max(1, len(ids)), flush=True)"""
EVEN = ["rewards=" + json.dumps([{"name": "even", "command": [sys.executable, "-c", EVEN_CODE], "workers": 1}])]
REPLAY = ["rl.replay=replay.jsonl", "rewards=[]", "data.train=[]"]
LORA = ["adapter.method=lora", "adapter.rank=4"]
TWICE = ["rl.minibatches=2", "rl.iterations=2", "train.max_steps=8"]


def runs():
    """Name -> the commands of one run; a run's output directory is its name."""
    sft = lambda model, *keys: [SFT + [f"model.path={model}", *keys]]
    grpo = lambda model, *keys: [GRPO + EVEN + [f"model.path={model}", *keys]]
    replay = lambda *keys: [GRPO + ["model.path=qwen3", *REPLAY, *keys]]
    parts = lambda commands, first, last: [commands[0] + [f"train.max_steps={n}", "optimizer.schedule=constant"] for n in (first, last)]
    ranks = lambda commands: [[command[0], "--nproc", "2", *command[1:]] for command in commands]
    out = {
        "sft": sft("qwen3"),
        "sft-llama": sft("llama", "optimizer.schedule=linear", "optimizer.final_lr_fraction=0.1"),
        "sft-gemma2": sft("gemma2"),
        "sft-text": sft("text", "data.train=texts.jsonl"),
        "sft-epochs": sft("llama", "train.max_steps=null", "train.epochs=1", "data.max_length=24", "data.overlong=drop"),
        "sft-lora": sft("llama", *LORA),
        "sft-lora-dropout": sft("qwen3", *LORA, "adapter.dropout=0.1", "adapter.target_modules=[q_proj, down_proj]"),
        "sft-recompute": sft("gemma2", "train.recompute=blocks"),
        "sft-recompute-lora": sft("qwen3", *LORA, "adapter.dropout=0.1", "train.recompute=blocks"),
        "sft-bfloat16": sft("qwen3", "model.dtype=bfloat16"),
        "sft-bfloat16-lora": sft("gemma2", *LORA, "model.dtype=bfloat16"),
        "sft-sgd": sft("qwen3", "optimizer.name=sgd", "optimizer.momentum=0.9"),
        "sft-small-passes": sft("qwen3", "train.micro_batch_tokens=24"),
        "sft-sources": sft("qwen3", "data.train=[{path: rows.jsonl, weight: 2}, {path: masked.jsonl, weight: 1}]"),
        "sft-eval": sft("llama", "data.eval=masked.jsonl", "train.eval_every=2"),
        "sft-resumed": parts(sft("qwen3"), 3, 6),
        "sft-resumed-lora": parts(sft("llama", *LORA, "adapter.dropout=0.1"), 3, 6),
        "sft-ranks": ranks(sft("qwen3")),
        "grpo": grpo("qwen3"),
    }
    for algorithm in ("dr_grpo", "dapo", "gspo", "rloo"):
        out[algorithm] = grpo("qwen3", f"rl.algorithm={algorithm}")
    for algorithm in ("grpo", "dr_grpo", "dapo", "gspo", "rloo"):
        out[f"{algorithm}-replayed"] = replay(f"rl.algorithm={algorithm}")
    out |= {
        "grpo-foreign": replay("rl.replay=foreign.jsonl", *TWICE),
        "grpo-twice": grpo("llama", *TWICE),
        "gspo-twice-bfloat16": grpo("gemma2", "rl.algorithm=gspo", "model.dtype=bfloat16", *TWICE),
        "grpo-lora": grpo("qwen3", *LORA, *TWICE),
        "grpo-lora-onward": grpo("llama", "adapter.path=sft-lora/final", "rl.beta=0.1"),
        "grpo-text": [GRPO + ["model.path=text", "data.train=questions.jsonl", "data.eval=questions.jsonl",
                              "rewards=[{name: regex, pattern: 'e.*[ao]', weight: 1}, {name: length, weight: 0.5}]", "rollout.top_k=50", "rollout.top_p=0.9"]],
        "grpo-resumed": parts(grpo("qwen3"), 3, 6),
        "grpo-ranks": ranks(grpo("qwen3")),
    }
    return out | target_runs.runs(SFT, GRPO, EVEN)


def timed(key):
    return key.endswith("_seconds") or "_latency_p" in key or key.endswith("/tokens_per_second") or key in ("tokens_per_second", "peak_memory_bytes")


def read_rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_field(rows):
    """Each field's values over all rows, as one text that floats survive."""
    fields = {key for row in rows for key in row}
    return {key: json.dumps([row.get(key, "absent") for row in rows], sort_keys=True) for key in sorted(fields)}


def read_result(directory):
    """Path within the output directory (and field) -> value."""
    found = {}
    for path in [directory / "out.jsonl", *sorted((directory / "final").rglob("*")), *sorted((directory / "critic").rglob("*"))]:
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".json":  # an adapter names its base by its whole path
                content = content.replace(os.fsencode(os.getcwd()), b".")
            found[str(path.relative_to(directory))] = hashlib.sha256(content).hexdigest()
    metrics = directory / "metrics.jsonl"
    for row in read_rows(metrics) if metrics.exists() else []:
        kind = "eval" if any(key.startswith("eval/") for key in row) else "train"
        for key, value in row.items():
            if not timed(key):
                found[f"metrics {kind} step {row['step']} {key}"] = json.dumps(value)
    for path in sorted((directory / "rollouts").glob("*.jsonl")):
        for key, text in by_field(read_rows(path)).items():
            found[f"rollouts/{path.name} {key}"] = hashlib.sha256(text.encode()).hexdigest()
    return found


def record(temper, only, environment, emulator=(), timeout=120):
    """timeout: seconds for one command."""
    if emulator:  # it cannot start itself again, as it does to set this (temper/cli/main.cpp)
        environment = {"GOMP_SPINCOUNT": "1", **environment}

    def call(arguments, threads=2):
        done = subprocess.run([*emulator, temper, *arguments], capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, "OMP_NUM_THREADS": str(threads), "TEMPER_CACHE_DIR": "", **environment})
        return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]

    def call_run(name, command):
        if target_runs.OUT not in command:
            return call([*command, f"output_dir={name}"], 1 if "--nproc" in command else 2)
        os.makedirs(name, exist_ok=True)
        return call([f"{name}/out.jsonl" if argument == target_runs.OUT else argument for argument in command])

    out = {}
    if unknown := sorted(set(only or ()) - set(runs())):
        sys.exit(f"--only: found {', '.join(unknown)}, expected names of runs: {', '.join(runs())}")
    wanted = {name: commands for name, commands in runs().items() if (name in only if only else not emulator or "--nproc" not in commands[0])}
    used = {argument.removeprefix("model.path=").removeprefix("distill.teacher=") for commands in wanted.values() for command in commands for argument in command}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for name in make_inputs():
            if name not in used:
                continue
            status, error = call(["init", "--config", f"{name}.json", "--seed", "3", "--output", name, *(["--tokenizer", "tokenizer"] if name == "text" else [])])
            if status:
                sys.exit(f"{name}: {error}")
            out[f"init {name}"] = {"status": 0, "values": {"weights": hashlib.sha256(pathlib.Path(name, "model.safetensors").read_bytes()).hexdigest()}}
        for name, commands in wanted.items():
            start = time.time()
            for command in commands:
                status, error = call_run(name, command)
                if status:
                    break
            out[name] = {"status": status, **({"error": error} if status else {}), "values": read_result(pathlib.Path(name))}
            print(f"{name}: {len(out[name]['values'])} values, {time.time() - start:.1f} s" + (f", exit status {status}: {error}" if status else ""), flush=True)
            if name == "grpo":  # what the replays train on
                with open("replay.jsonl", "w") as f:
                    for step in (1, 2, 3):
                        path = pathlib.Path(f"grpo/rollouts/step-{step}.jsonl")
                        f.write(path.read_text() if path.exists() else "")
        os.chdir(ROOT)
    return out


def environments(temper):
    """What must not change a bit. The widest vector instructions are those that are used anyway."""
    has = lambda name: subprocess.run([temper, "list", "losses"], capture_output=True, env={**os.environ, "TEMPER_SIMD": name}).returncode == 0
    found = [{"TEMPER_SIMD": name} for name in ("neon", "avx2", "avx512") if has(name)]
    return [*found[:-1], {"ATEN_CPU_CAPABILITY": "default"}, {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2"}]


def compare_targets(temper, only):
    """Records each run as it is and in each environment; prints what differs. The number of runs that differ or fail."""
    first = record(temper, only, {})
    failed = {name for name, run in first.items() if run["status"]}
    for environment in environments(temper):
        text = " ".join(f"{name}={value}" for name, value in environment.items())
        print(f"with {text}:", flush=True)
        other = record(temper, only, environment)
        for name in first:
            if compare({name: first[name]}, {name: other[name]}, limit=3):
                failed.add(name)
    print(f"{len(first)} runs; differ or fail: {', '.join(sorted(failed)) or 'none'}")
    return len(failed)


def key_of(place):
    """A place without its step: `metrics train loss`, `rollouts reward`."""
    words = place.split()
    return " ".join(words[:2] + words[4:] if words[0] == "metrics" else ["rollouts", *words[1:]] if words[0].startswith("rollouts/") else words)


def compare(a, b, limit=None):
    """Prints every difference, or the first ones of each run; the number of values that differ."""
    different = 0
    for name in a | b:
        if name not in a or name not in b:
            different += 1
            print(f"{name}: only in the {'first' if name in a else 'second'} record")
            continue
        if a[name]["status"] != b[name]["status"]:
            different += 1
            print(f"{name}: exit status {a[name]['status']} and {b[name]['status']}: {a[name].get('error', '')} {b[name].get('error', '')}".rstrip())
        before, after = a[name]["values"], b[name]["values"]
        keys_before, keys_after = {key_of(place) for place in before}, {key_of(place) for place in after}
        places = [place for place in before | after if before.get(place) != after.get(place) and key_of(place) in keys_before & keys_after]
        different += len(places)
        for place in places[:limit]:
            print(f"{name}: {place}: {before.get(place, 'absent')[:40]} and {after.get(place, 'absent')[:40]}")
        for word, only in (("removed", keys_before - keys_after), ("added", keys_after - keys_before)):
            if only:
                different += len(only)
                print(f"{name}: {word}: {', '.join(sorted(only))}")
    return different


def digest(run):
    """Of every value of a run, in short."""
    if run["status"]:
        return f"exit status {run['status']}"
    return "`" + hashlib.sha256(json.dumps(run["values"], sort_keys=True).encode()).hexdigest()[:12] + "`"


def print_table(records):
    """Title -> record. One row a run that every record has; the number of rows that differ."""
    names = [name for name in next(iter(records.values())) if all(name in record for record in records.values())]
    print(f"| run | values | {' | '.join(records)} |\n|---|---|{'---|' * len(records)}")
    different = 0
    for name in names:
        digests = [digest(record[name]) for record in records.values()]
        different += len(set(digests)) > 1
        values = {len(record[name]["values"]) for record in records.values()}
        print(f"| {name} | {', '.join(map(str, sorted(values)))} | {' | '.join(digests)} |")
    print(f"\n{len(names)} rows; {different} differ.")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--temper", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="names of runs")
    parser.add_argument("--environment", nargs="*", default=[], metavar="NAME=VALUE", help="variables of the recorded runs")
    parser.add_argument("--targets", action="store_true", help="compare vector instructions and libraries")
    parser.add_argument("--emulator", type=str.split, default=[], metavar="COMMAND", help="what runs a program that was built for another machine")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one command (120)")
    parser.add_argument("--table", nargs="+", metavar="TITLE=RECORD", help="print digests side by side")
    parser.add_argument("--compare", nargs=2, type=pathlib.Path, metavar=("A", "B"))
    args = parser.parse_args()
    if args.compare:
        a, b = (json.loads(path.read_text()) for path in args.compare)
        different = compare(a, b)
        print(f"{different} values differ" if different else "every value is the same")
        sys.exit(1 if different else 0)
    if args.table:
        records = {title: json.loads(pathlib.Path(path).read_text()) for title, path in (pair.split("=", 1) for pair in args.table)}
        sys.exit(1 if print_table(records) else 0)
    if args.temper and args.targets:
        sys.exit(1 if compare_targets(str(args.temper.resolve()), args.only) else 0)
    if not args.temper or not args.output:
        parser.error("--temper and --output or --targets, or --compare or --table")
    output = args.output.resolve()
    emulator = [str(pathlib.Path(word).resolve()) if os.path.exists(word) else word for word in args.emulator]  # runs have directories of their own
    start = time.time()
    output.write_text(json.dumps(record(str(args.temper.resolve()), args.only, dict(pair.split("=", 1) for pair in args.environment), emulator, args.timeout), indent=1))
    print(f"{output}: {time.time() - start:.0f} s")


main()
