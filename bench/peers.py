"""What the benchmarks share: the peers' environment, the model, and Temper itself."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".deps/bench-venv"
TEMPER = ROOT / "build/temper"
MODEL = ROOT / "models/bench"


def setup():
    subprocess.check_call([sys.executable, "-m", "venv", VENV])
    subprocess.check_call([VENV / "bin/pip", "install", "-q", "torch==2.13.0"])
    subprocess.check_call([VENV / "bin/pip", "install", "-q", "trl", "peft", "transformers", "datasets", "llama-cpp-python", "gguf", "safetensors"])


def model(path=MODEL):
    """The benchmark model: 29M parameters of random weights."""
    if not os.path.exists(path):
        subprocess.check_call([TEMPER, "init", "--config", ROOT / "../shared/bench/config.json", "--tokenizer", ROOT / "../shared/bench",
                               "--seed", "1", "--output", path])
    return str(path)


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
