#!/usr/bin/env python3
"""Trains for many steps with an environment that hangs, crashes, answers garbage and writes noise at random, and checks
that nothing leaks.

usage: tools/soak_environment.py --temper build/temper [--steps 500] [--keep DIR]

Checked are: every step is made; sampler and trainer agree to the bit; every kind of failure was met and counted; the
peak of resident memory and the number of open descriptors stay where they are after the first fifth; no process and no
temporary directory is left. A short version of this is part of the tests (tests/e2e/environment_test.sh).
"""
import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WILD = '''
import json, os, random, sys, time
random.seed()
for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close":
        continue
    dice = random.random()
    if dice < 0.004:
        os.system("sleep 300 &")
        time.sleep(300)
    elif dice < 0.012:
        os._exit(3)
    elif dice < 0.016:
        os.kill(os.getpid(), 11)
    elif dice < 0.03:
        print("x" * random.randrange(1, 3000), flush=True)
        continue
    elif dice < 0.04:
        print("noise", file=sys.stderr, flush=True)
        print(json.dumps({"messages": "none", "done": 7}), flush=True)
        continue
    elif dice < 0.05:
        open(os.path.join(os.environ["TMPDIR"], "left"), "a").write("x" * 1000)
    print(json.dumps({"messages": [{"role": "user", "content": "north"}], "reward": 0.25 * ("north" in request.get("completion", "")),
                      "done": request["type"] == "step" and random.random() < 0.2}), flush=True)
'''

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--temper", required=True)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--keep", help="work here, and leave everything")
args = parser.parse_args()
temper = str(pathlib.Path(args.temper).resolve())
folder = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="temper-soak-")).resolve()
folder.mkdir(parents=True, exist_ok=True)
scratch = folder / "tmp"
scratch.mkdir(exist_ok=True)
marker = f"wild-{os.getpid()}.py"
(folder / marker).write_text(WILD)
subprocess.run([sys.executable, ROOT / "examples" / "grid_world_model.py", folder / "grid_world"], check=True)
subprocess.run([temper, "init", "--config", folder / "grid_world/config.json", "--tokenizer", folder / "grid_world", "--output", folder / "model"],
               check=True, stdout=subprocess.DEVNULL)
run = subprocess.Popen(
    [temper, "grpo", f"output_dir={folder}/run", f"model.path={folder}/model", f"data.train={folder}/grid_world/rows.jsonl",
     f"train.max_steps={args.steps}", "rl={group_size: 4, prompts_per_rollout: 4, beta: 0}", "rollout={max_new_tokens: 64, cache_bytes: 8000000}",
     f"environment={{command: [{sys.executable}, {folder}/{marker}], max_turns: 4, timeout_seconds: 0.3, start_timeout_seconds: 1}}",
     "metrics.sinks=[jsonl]"], cwd=folder, env={**os.environ, "TMPDIR": str(scratch)})
descriptors = []


def watch():
    while run.poll() is None:
        try:
            descriptors.append(len(os.listdir(f"/proc/{run.pid}/fd")))
        except OSError:
            pass
        time.sleep(0.2)


threading.Thread(target=watch, daemon=True).start()
start = time.time()
problems = []
if run.wait() != 0:
    problems.append(f"the run ended with {run.returncode}")
rows = [json.loads(line) for line in open(folder / "run/metrics.jsonl")]
fifth = max(1, args.steps // 5)
if len(rows) != args.steps:
    problems.append(f"{len(rows)} of {args.steps} steps")
if any(row["sampler_trainer_max_abs_diff"] != 0 for row in rows):
    problems.append("the sampler is not the trainer")
counts = {what: rows[-1][f"environment_{what}"] for what in ("timeouts", "crashes", "malformed")}
if min(counts.values()) == 0:
    problems.append(f"not every failure was met: {counts}")
early, late = max(row["peak_memory_bytes"] for row in rows[:fifth]), rows[-1]["peak_memory_bytes"]
if late > early + 16e6:
    problems.append("memory grows")
part = max(1, len(descriptors) // 5)
if max(descriptors[-part:]) > max(descriptors[:part]) + 8:
    problems.append("descriptors grow")
time.sleep(0.5)
left = [p for p in glob.glob("/proc/[0-9]*/cmdline") if marker.encode() in pathlib.Path(p).read_bytes()]
if left:
    problems.append(f"processes are left: {left}")
if list(scratch.iterdir()):
    problems.append(f"directories are left: {list(scratch.iterdir())}")
print(f"{len(rows)} steps in {time.time() - start:.0f} s; failures {counts}; peak memory {early / 1e6:.0f} MB within a fifth, {late / 1e6:.0f} MB at the end; "
      f"descriptors at most {max(descriptors[:part])}, then {max(descriptors[-part:])}; episodes {sum(1 for p in glob.glob(str(folder / 'run/rollouts/*')) for _ in open(p))}")
print("\n".join(problems) or "nothing leaks, nothing stops")
sys.exit(1 if problems else 0)
