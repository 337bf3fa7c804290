"""What the benchmarks share: the peers' environment, the model, and Temper itself."""
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".deps/bench-venv"
TEMPER = pathlib.Path(os.environ.get("TEMPER", ROOT / "build/temper"))
MODEL = ROOT / "models/bench"
BENCH = ROOT / "bench/model"
# Rows with question and answer, as JSONL: GSM8K's training rows, from its repository or
#   hf download openai/gsm8k --repo-type dataset --local-dir gsm8k
#   python3 -c 'import pandas; pandas.read_parquet("gsm8k/main").to_json("bench/gsm8k.jsonl", orient="records", lines=True)'
GSM8K = pathlib.Path(os.environ.get("TEMPER_BENCH_ROWS", ROOT / "bench/gsm8k.jsonl"))

# What every peer's training code begins with.
PRELUDE = r"""
import json, resource, sys, time
start = time.time()
def result(**values):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("RESULT " + json.dumps(dict(values, peak_memory_bytes=peak)))
# ends: (time, process time) when each step ended. Rates leave the first two steps out.
def rates(ends, tokens):
    (wall, cpu), (last_wall, last_cpu), count = ends[1], ends[-1], sum(tokens[2:])
    return dict(tokens_per_second=count / (last_wall - wall), tokens_per_cpu_second=count / (last_cpu - cpu), first_step_seconds=ends[0][0] - start,
                tokens=tokens)
def now(): return time.time(), time.process_time()
def in_order(trainer):
    from torch.utils.data import SequentialSampler
    trainer._get_train_sampler = lambda self, *a: SequentialSampler(self.train_dataset)
def step_ends():
    from transformers import TrainerCallback
    class Ends(TrainerCallback):
        ends = []
        def on_step_end(self, *args, **kwargs): self.ends.append(now())
    return Ends()
"""


def setup():
    subprocess.check_call([sys.executable, "-m", "venv", VENV])
    subprocess.check_call([VENV / "bin/pip", "install", "-q", "torch==2.13.0"])
    subprocess.check_call([VENV / "bin/pip", "install", "-q", "trl", "peft", "transformers", "datasets", "bitsandbytes", "llama-cpp-python", "gguf", "safetensors"])


def model(path=MODEL, config=BENCH / "config.json"):
    """The benchmark model: 29M parameters of random weights. `config`: another one of its family, in `path`."""
    if not os.path.exists(path):
        subprocess.check_call([TEMPER, "init", "--config", config, "--tokenizer", BENCH, "--seed", "1", "--output", path],
                              stdout=subprocess.DEVNULL)
    return str(path)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def count_lines(path):
    return open(path).read().count("\n") if os.path.exists(path) else 0


def temper(verb, directory, *settings, untimed=2):
    """Trains with the settings in file order; rates leave the first `untimed` steps out. Losses: those of every step, by name."""
    start = time.time()
    metrics = f"{directory}/metrics.jsonl"
    command = [TEMPER, verb, f"output_dir={directory}", "data.shuffle=false", "metrics.sinks=[jsonl]", *settings]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    cpu = []  # when each step ended
    while process.poll() is None:
        cpu += [cpu_seconds(process.pid)] * (count_lines(metrics) - len(cpu))
        time.sleep(0.02)
    if process.returncode != 0:
        sys.exit(process.returncode)
    wall = time.time() - start
    rows = [json.loads(line) for line in open(metrics)]
    timed = rows[untimed:]
    tokens = sum(r["tokens"] for r in timed)
    return {"tokens_per_second": tokens / sum(r["step_seconds"] for r in timed),
            "tokens_per_cpu_second": tokens / max(cpu[len(rows) - 1] - cpu[untimed - 1], 0.01) if len(cpu) >= len(rows) else 0,
            "first_step_seconds": wall - sum(r["step_seconds"] for r in rows[1:]), "peak_memory_bytes": rows[-1]["peak_memory_bytes"],
            "tokens": [r["tokens"] for r in rows], "tokens_computed": sum(r["tokens_computed"] for r in rows),
            "losses": {name: [r[name] for r in rows] for name in rows[0] if name == "loss" or name.endswith("_loss")}}


def alternately(repeats, *runs):
    """Each of the runs in turn, `repeats` times; of each the best rate, start and memory. None where a run has no result."""
    results = [[] for _ in runs]
    for _ in range(repeats):
        for run, found in zip(runs, results):
            found.append(run())
    best = {"tokens_per_second": max, "tokens_per_cpu_second": max, "first_step_seconds": min, "peak_memory_bytes": min}
    return [dict(found[0], **{name: of(r[name] for r in found) for name, of in best.items()}) if all(found) else None for found in results]


def report(title, peer_name, ours, peer):
    """One line for each side, then how they compare; losses step by step."""
    print(f"{title}  (load {os.getloadavg()[0]:.1f})")
    for name, r in (("Temper", ours), (peer_name, peer)):
        if r:
            print(f"  {name:7} {r['tokens_per_second']:7.0f} tokens/s  {r['tokens_per_cpu_second']:7.0f} a CPU second  {r['peak_memory_bytes'] / 1e9:5.2f} GB  first step after "
                  f"{r['first_step_seconds']:5.1f} s  loss {r['losses']['loss'][0]:.5f} to {r['losses']['loss'][-1]:.5f}")
    if not peer:
        return
    print(f"  speed {ours['tokens_per_second'] / peer['tokens_per_second']:.1f} times, "
          f"{ours['tokens_per_cpu_second'] / peer['tokens_per_cpu_second']:.1f} by CPU time, memory "
          f"{100 * ours['peak_memory_bytes'] / peer['peak_memory_bytes']:.0f} %, of {sum(ours['tokens'])} tokens "
          f"{ours['tokens_computed']} went through the model")
    if ours["tokens"] != peer["tokens"]:
        print("  the sides did not train on the same tokens: " + ", ".join(f"{a} and {b}" for a, b in zip(ours["tokens"], peer["tokens"])))
    for name, theirs in peer["losses"].items():
        worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours["losses"][name], theirs))
        print(f"  {name}: at most {100 * worst:.4f} % apart in any step; Temper's " + " ".join(f"{x:.6f}" for x in ours["losses"][name])
              + f", {peer_name}'s " + " ".join(f"{x:.6f}" for x in theirs))


def run_python(python, code, *arguments):
    """Runs a peer's code; its line that begins with RESULT is the answer. None where it is not installed."""
    if not os.path.exists(python):
        print(f"  {python} is not there: make bench-setup")
        return None
    done = subprocess.run([str(python), "-c", code, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        print("  the peer failed: " + done.stderr.strip().splitlines()[-1])
        return None
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
