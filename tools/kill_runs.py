#!/usr/bin/env python3
"""Kills training runs at random moments, lets the same command go on, and compares what they leave with runs that
nobody killed, bit by bit.

usage: tools/kill_runs.py --temper build/temper [--kills 1000] [--minutes 30] [--verbs sft dpo grpo ppo distill sweep]
[--seed 0] [--jobs 1] [--keep DIR]

Tiny models of random weights are trained for a few steps with frequent saves and evaluations. A run is killed by
SIGKILL, or now and then stopped by SIGINT, goes on, may be killed again, and in the end is left alone. A kill comes at
any time, or is aimed at a step, a save or an evaluation; the table counts what each SIGKILL hit, as the files show.
Saves are made in the background in half of the runs, and each process has one or two threads. Compared are the weights,
the last checkpoint's weights and moments, the rollouts, the manifest, and metrics.jsonl apart from times and memory.
Before that two undisturbed runs must agree and a run of another seed must not.

Exit status: 0: no bit differs and every run went on; 1: otherwise (the directories of such runs are kept); 2: wrong
arguments.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 120  # seconds for one process
STEPS, EVAL_EVERY = 12, 3
MOMENTS = ("start", "step", "save", "evaluation", "end")
VARIES = re.compile(r"_seconds$|_latency_p\d+$|_per_second$|^peak_memory_bytes$")
COMMON = {"model.path": "model", "train.max_steps": STEPS, "train.save_every": 2, "train.eval_every": EVAL_EVERY, "train.keep_checkpoints": 2,
          "train.micro_batch_tokens": 128, "optimizer.learning_rate": 3e-3, "metrics.sinks": "[jsonl]"}
ROWS = {"data.train": "rows.jsonl", "data.eval": "rows.jsonl", "train.batch_size": 4}
SAMPLES = {"data.train": "prompts.jsonl", "data.eval": "prompts.jsonl", "rollout.max_new_tokens": 8}
REWARDS = {"rewards": "[{name: even, command: [sh, even.sh]}]", "rl.prompts_per_rollout": 4}
# Variants of each verb, one of which a run is.
RUNS = {
    "sft": [ROWS, {**ROWS, "adapter.method": "lora", "adapter.rank": 4, "adapter.dropout": 0.1}, {**ROWS, "optimizer.name": "adamw8bit"}],
    "dpo": [{**ROWS, "data.train": "pairs.jsonl", "data.eval": "pairs.jsonl"}],
    "grpo": [{**SAMPLES, **REWARDS, "rl.group_size": 4, "rl.minibatches": 2, "rl.iterations": 2}, {**SAMPLES, **REWARDS, "rl.algorithm": "dapo", "rl.max_refills": 2},
             {**SAMPLES, **REWARDS, "rl.group_size": 4, "rl.max_staleness": 1}],
    "ppo": [{**SAMPLES, **REWARDS, "rl.minibatches": 2}],
    "distill": [{**ROWS, "distill.teacher": "teacher"}, {**ROWS, "distill.teacher": "teacher", "distill.strategy": "feature_projection"},
                {**SAMPLES, "train.batch_size": 4, "distill.teacher": "teacher", "distill.strategy": "on_policy"},
                {**ROWS, "model.path": "speaker", "data.train": "texts.jsonl", "data.eval": "texts.jsonl", "distill.teacher": "other_speaker",
                 "distill.cross_tokenizer": "gold"}],
    # Sweeps of LoRA runs in one process: `over` is the verb and the keys that vary.
    "sweep": [{**ROWS, "adapter.method": "lora", "over": ("sft", "optimizer.weight_decay=0,0.1", "adapter.rank=2,4")},
              {**ROWS, "adapter.method": "lora", "data.train": "pairs.jsonl", "data.eval": "pairs.jsonl",
               "over": ("dpo", "optimizer.weight_decay=0,0.1", "train.batch_size=3,4")}],
}
REWARD = '''while read -r line; do
  ids=${line#*completion_tokens\\":[}; ids=${ids%%]*}
  n=0; even=0; IFS=,; for id in $ids; do n=$((n + 1)); [ $((id % 2)) = 0 ] && even=$((even + 1)); done; unset IFS
  echo "{\\"reward\\": $((1000 * even / n))e-3}"
done
'''


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_inputs(temper, folder):
    """Models and rows."""
    # Hidden size, layers, seed, tokenizer.
    sizes = {"model": (72, 3, 3, None), "teacher": (48, 4, 5, None), "speaker": (72, 2, 3, "qwen2"), "other_speaker": (48, 2, 5, "llama3")}
    for name, (hidden, layers, seed, of) in sizes.items():
        tokenizer, vocabulary = [], 331
        if of:
            known = json.loads((ROOT / f"tests/golden/tokenizers/{of}.json").read_text())["tokenizer"]
            vocabulary = 1 + max([*known["model"]["vocab"].values(), *(token["id"] for token in known["added_tokens"])])
            (folder / f"{name}-tokenizer").mkdir()
            (folder / f"{name}-tokenizer/tokenizer.json").write_text(json.dumps(known))
            tokenizer = ["--tokenizer", f"{name}-tokenizer"]
        config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 100,
                  "num_hidden_layers": layers, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "tie_word_embeddings": True,
                  "eos_token_id": 2}
        (folder / f"{name}.json").write_text(json.dumps(config))
        made = subprocess.run([temper, "init", "--config", f"{name}.json", "--seed", str(seed), *tokenizer, "--output", name], cwd=folder,
                              capture_output=True, text=True)
        if made.returncode:
            sys.exit(f"{temper} init: {made.stderr.strip()}")
    rows = [[5 + (7 * i + 3 * k) % 300 for k in range(6 + i % 23)] for i in range(40)]
    write_rows(folder / "rows.jsonl", [{"input_ids": row} for row in rows])
    write_rows(folder / "prompts.jsonl", [{"prompt_ids": row[:1 + i % 17]} for i, row in enumerate(rows)])
    write_rows(folder / "pairs.jsonl", [{"prompt_ids": row[:4], "chosen_ids": row[4:], "rejected_ids": row[:3]} for row in rows])
    write_rows(folder / "texts.jsonl", [{"prompt": f"the quick brown fox number {i} ", "completion": f"jumps over {7 * i} lazy dogs."} for i in range(16)])
    (folder / "even.sh").write_text(REWARD)


def command(temper, verb, settings, output):
    settings = {**COMMON, **settings, "output_dir": output}
    swept, *over = settings.pop("over", (None,))
    return [temper, verb, *([swept] if swept else []), *(word for values in over for word in ("--over", values)),
            *(f"{key}={value}" for key, value in settings.items())]


def metrics(directory):
    """Rows of metrics.jsonl without what differs between any two runs."""
    with open(directory / "metrics.jsonl") as f:
        return [{k: v for k, v in json.loads(line).items() if not VARIES.search(k)} for line in f]


def manifest(directory):
    """Steps of manifest.jsonl, once its chain is known to hold; a stop adds digests of weights to its step."""
    lines = (directory / "manifest.jsonl").read_bytes().splitlines()
    rows = [json.loads(line) for line in lines]
    if any(row["previous"] != hashlib.sha256(line).hexdigest() for row, line in zip(rows[1:], lines)):
        return b"broken"
    return json.dumps([{k: v for k, v in row.items() if k not in ("weights", "previous", "program")} for row in rows]).encode()


def runs_of(output):
    """The directories of a sweep's runs; of a run its own."""
    return sorted(path.parent for path in output.glob("*/config.yaml")) or [output]


def contents(output):
    """Bytes of what is compared, by name."""
    return {str((run / name).relative_to(output)): left
            for run in runs_of(output) for name, left in contents_of_run(run).items()}


def contents_of_run(directory):
    """json.dumps writes floats that read back to the same bits."""
    left = {"metrics.jsonl": "\n".join(json.dumps(row) for row in metrics(directory)).encode(), "manifest.jsonl": manifest(directory)}
    for pattern in ("final/*", "critic/*", "projection/*", "rollouts/*", f"checkpoints/step-{STEPS}/*.safetensors"):
        for path in directory.glob(pattern):
            if path.is_file():
                left[str(path.relative_to(directory))] = path.read_bytes()
    return left


def differing_bits(a, b):
    """By the names of the files that differ."""
    bits = {}
    for name in sorted({*a, *b}):
        x, y = a.get(name, b""), b.get(name, b"")
        if x != y:
            same = min(len(x), len(y))
            bits[name] = (int.from_bytes(x[:same], "big") ^ int.from_bytes(y[:same], "big")).bit_count() + 8 * abs(len(x) - len(y))
    return bits


def changed_at(path):
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return 0


def last_row(output):
    try:
        with open(runs_of(output)[0] / "metrics.jsonl", "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - 8192))
            return json.loads(f.read().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return {}


def is_saving(output, since):
    return changed_at(runs_of(output)[0] / ".writing-checkpoint") > since


def steps_since(output, since):
    """The last step that the process started at the time `since` (ns) has logged; 0: none yet."""
    return last_row(output).get("step", 0) if changed_at(runs_of(output)[0] / "metrics.jsonl") > since else 0


def is_evaluating(output, since):
    row = last_row(output)
    return changed_at(runs_of(output)[0] / "metrics.jsonl") > since and "loss" in row and row["step"] % EVAL_EVERY == 0


def hit(output, since):
    """What the process that was started at the time `since` (ns) was doing when it died."""
    if changed_at(runs_of(output)[0] / "metrics.jsonl") < since:
        return "start"
    if is_saving(output, since):
        return "save"
    run = runs_of(output)[0]
    if (run / "final").exists() or any(changed_at(path) > since for path in run.glob(".writing-*")) or \
            (run / f"checkpoints/step-{STEPS}/state.json").exists():
        return "end"
    return "evaluation" if is_evaluating(output, since) else "step"


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.kills, self.interrupts, self.runs, self.bits, self.problems = 0, 0, 0, 0, []
        self.rows = {}  # (verb, background) -> counts

    def row(self, key):
        return self.rows.setdefault(key, {"runs": 0, "SIGKILL": 0, "SIGINT": 0, "bits": 0, "failed": 0, **dict.fromkeys(MOMENTS, 0)})


class Killer:
    def __init__(self, args, folder):
        self.args, self.folder, self.tally = args, folder, Tally()
        self.whole = {}  # (verb, variant) -> contents and seconds of the undisturbed run
        self.ends = time.monotonic() + 60 * args.minutes

    def is_over(self):
        return time.monotonic() > self.ends or self.tally.kills >= self.args.kills

    def start(self, verb, settings, output, rng):
        log = open(f"{output}.log", "ab")
        env = {**os.environ, "OMP_NUM_THREADS": str(rng.choice([1, 2]))}
        return subprocess.Popen(command(self.args.temper, verb, settings, output), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def whole_run(self, verb, settings, name):
        output, begun = self.folder / name, time.monotonic()
        process = self.start(verb, settings, output, random.Random(0))
        if process.wait(TIMEOUT) != 0:
            sys.exit(f"an undisturbed run fails: {' '.join(process.args)}: {pathlib.Path(f'{output}.log').read_text()[-500:]}")
        return contents(output), time.monotonic() - begun

    def make_whole_runs(self):
        for verb in self.args.verbs:
            for i, settings in enumerate(RUNS[verb]):
                left, seconds = self.whole_run(verb, {**settings, "train.save_in_background": "false"}, f"whole-{verb}-{i}")
                again, _ = self.whole_run(verb, {**settings, "train.save_in_background": "true"}, f"again-{verb}-{i}")
                if bits := differing_bits(left, again):
                    sys.exit(f"two undisturbed runs of {verb} {settings} differ: {bits}")
                other, _ = self.whole_run(verb, {**settings, "seed": 1, "train.max_steps": STEPS}, f"other-{verb}-{i}")
                if not differing_bits(left, other):
                    sys.exit(f"{verb}: a run of another seed leaves the same: the comparison cannot fail")
                self.whole[verb, i] = left, seconds

    def wait_for(self, process, output, since, seconds, rng):
        """Waits for a moment to kill at. False: the process ended before."""
        aim = rng.choice(("any time", "step", "save", "evaluation"))
        first = last_row(output).get("step", 0)
        step = first + rng.randrange(max(1, STEPS - first))
        seen = {"any time": None, "step": lambda: steps_since(output, since) >= step,
                "save": lambda: steps_since(output, since) >= step - 2 and is_saving(output, since),
                "evaluation": lambda: steps_since(output, since) >= step - EVAL_EVERY and is_evaluating(output, since)}[aim]
        begun = time.monotonic()
        while time.monotonic() < begun + TIMEOUT and not (aim == "any time" or seen()):
            if process.poll() is not None:
                return False
            time.sleep(0.0005)
        until = time.monotonic() + rng.uniform(0, seconds if aim == "any time" else 0.02 if aim == "step" else 0.01)
        while (left := until - time.monotonic()) > 0 and process.poll() is None:
            time.sleep(min(0.002, left))
        return process.poll() is None

    def one_run(self, number):
        rng = random.Random(f"{self.args.seed} {number}")
        verb = rng.choice(self.args.verbs)
        variant = rng.randrange(len(RUNS[verb]))
        background = rng.random() < 0.5
        left, seconds = self.whole[verb, variant]
        settings = {**RUNS[verb][variant], "train.save_in_background": str(background).lower()}
        output = self.folder / f"run-{number}"
        row = dict.fromkeys(MOMENTS, 0) | {"SIGKILL": 0, "SIGINT": 0}
        problem, bits = "", {}
        while not problem and not self.is_over() and (row["SIGKILL"] + row["SIGINT"] == 0 or rng.random() < 0.7):
            since = time.time_ns()
            process = self.start(verb, settings, output, rng)
            killed = self.wait_for(process, output, since, seconds * (1 - 0.8 * last_row(output).get("step", 0) / STEPS), rng)
            how = signal.SIGINT if rng.random() < self.args.interrupts else signal.SIGKILL
            if killed:
                process.send_signal(how)
            try:
                status = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status, problem = None, f"it hangs after {how.name}" if killed else "it hangs"
            # SIGINT before the program listens to it ends it as if by the default.
            expected = (0, -signal.SIGKILL) if how == signal.SIGKILL else (0, 128 + signal.SIGINT, -signal.SIGINT)
            if status is not None and status not in (expected if killed else (0,)):
                problem = f"exit status {status}" + (f" after {how.name}" if killed else "")
            if killed and status:
                row[how.name] += 1
            if killed and status == -signal.SIGKILL:
                row[hit(output, since)] += 1
            if not status:
                break
        if not problem:
            process = self.start(verb, settings, output, rng)
            try:
                if status := process.wait(TIMEOUT):
                    problem = f"it does not go on: exit status {status}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                problem = "it hangs"
        if not problem:
            bits = differing_bits(left, contents(output))
            remains = [path.name for run in runs_of(output) for path in run.glob(".writing-*")]
            problem = f"other bits: {bits}" if bits else f"left: {remains}" if remains else ""
        self.note((verb, background), row, bits, problem, output, settings)

    def note(self, key, row, bits, problem, output, settings):
        with self.tally.lock:
            sums = self.tally.row(key)
            for name, count in row.items():
                sums[name] += count
            sums["runs"] += 1
            sums["bits"] += sum(bits.values())
            sums["failed"] += bool(problem)
            self.tally.runs += 1
            self.tally.kills += row["SIGKILL"] + row["SIGINT"]
            self.tally.bits += sum(bits.values())
            if problem:
                log = pathlib.Path(f"{output}.log").read_text(errors="replace").strip().splitlines()
                self.tally.problems.append(f"{output}: {key[0]} {settings}: {problem}; it says: {log[-1] if log else 'nothing'}")
                print(self.tally.problems[-1], file=sys.stderr, flush=True)
            if self.tally.runs % 50 == 0:
                print(f"{self.tally.runs} runs, {self.tally.kills} kills, {len(self.tally.problems)} problems", file=sys.stderr, flush=True)
        if not problem:
            shutil.rmtree(output)
            os.remove(f"{output}.log")

    def work(self, first):
        number = first
        while not self.is_over():
            self.one_run(number)
            number += self.args.jobs

    def run(self):
        self.make_whole_runs()
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for future in [pool.submit(self.work, i) for i in range(self.args.jobs)]:
                future.result()

    def table(self):
        columns = ["runs", "SIGKILL", "SIGINT", *MOMENTS, "failed", "bits"]
        lines = [["verb", "saves", *("during " + c if c in MOMENTS else "differing bits" if c == "bits" else c for c in columns)]]
        for (verb, background), row in sorted(self.tally.rows.items()):
            lines.append([verb, "background" if background else "waiting", *(str(row[c]) for c in columns)])
        lines.append(["all", "", *(str(sum(row[c] for row in self.tally.rows.values())) for c in columns)])
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip() for line in lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--temper", required=True, help="the program")
    parser.add_argument("--kills", type=int, default=1000, help="end after so many (default 1000)")
    parser.add_argument("--minutes", type=float, default=60, help="end after so many minutes, once the runs in progress are compared (default 60)")
    parser.add_argument("--verbs", nargs="+", choices=[*RUNS], default=[*RUNS])
    parser.add_argument("--interrupts", type=float, default=0.2, help="share of SIGINT (default 0.2)")
    parser.add_argument("--seed", type=int, default=0, help="of the choices of verb, moment and signal (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side (default 1)")
    parser.add_argument("--keep", help="work here, and leave everything that is not equal")
    args = parser.parse_args()
    for name in ("kills", "minutes", "jobs"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name}: found {getattr(args, name)}, expected a number above 0")
    if not 0 <= args.interrupts <= 1:
        parser.error(f"--interrupts: found {args.interrupts}, expected a share from 0 to 1")
    args.temper = shutil.which(args.temper) and str(pathlib.Path(shutil.which(args.temper)).resolve()) or parser.error(
        f"--temper: no program {args.temper}; `make` builds it as build/temper")
    if args.keep and os.path.isdir(args.keep) and os.listdir(args.keep):
        parser.error(f"--keep: {args.keep} is not empty")
    return args


def main():
    args = arguments()
    folder = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="temper-kills-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and what they start
    make_inputs(args.temper, folder)
    killer = Killer(args, folder)
    try:
        killer.run()
    except KeyboardInterrupt:
        print("interrupted; what was done:", file=sys.stderr)
    tally = killer.tally
    print(killer.table())
    print(f"{tally.kills} kills of {tally.runs} runs in {time.monotonic() - begun:.0f} s: "
          + ("no bit differs" if not tally.problems else f"{len(tally.problems)} runs failed, {tally.bits} bits differ; see {folder}"))
    if not tally.problems and not args.keep:
        shutil.rmtree(folder)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
