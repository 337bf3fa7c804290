#!/usr/bin/env python3
"""Trains every golden model for three steps by the command line, whole and through LoRA, and asks transformers and PEFT
whether what was saved gives the same log-probabilities as `temper score`.

    python tests/golden/check_reload.py [--temper build/temper] [NAME...]      (torch, transformers, peft)

Prints one line for each family: the largest difference of a log-probability for the golden itself, for the trained model
and for the trained adapter, and the lines of its file. Any difference above 1e-5 is an error.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from peft import PeftModel

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "golden" / "models"
TOLERANCE = 1e-5


def temper(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}\n{done.stdout}{done.stderr}")
    return done.stdout


def reference(model, ids):
    with torch.no_grad():
        x = torch.tensor([ids])
        logits = model(input_ids=x, use_cache=False).logits[0, :-1].float()
        return torch.log_softmax(logits, -1).gather(1, x[0, 1:, None])[:, 0]


def sees_images(directory):
    return "text_config" in json.loads((directory / "config.json").read_text())


def load(directory):
    auto = transformers.AutoModelForImageTextToText if sees_images(directory) else transformers.AutoModelForCausalLM
    return auto.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32).eval()


def scored(program, work, sequences, *args):
    rows, out = work / "score.jsonl", work / "scored.jsonl"
    rows.write_text("".join(json.dumps(dict(tokens=s)) + "\n" for s in sequences))
    temper(program, "score", *args, "--input", rows, "--output", out)
    return [torch.tensor(json.loads(line)["logprobs"]) for line in out.read_text().splitlines()]


def difference(found, model, sequences):
    return max((f - reference(model, s)).abs().max().item() for f, s in zip(found, sequences))


def check(program, name, work):
    golden = GOLDENS / name
    sequences = json.loads((golden / "expected.json").read_text())["sequences"]
    rows = work / "rows.jsonl"
    rows.write_text("".join(json.dumps(dict(input_ids=s, labels=s)) + "\n" for s in sequences))
    worst = [difference(scored(program, work, sequences, "--model", golden), load(golden), sequences)]
    temper(program, "generate", "--model", golden, "--input", work / "score.jsonl", "--output", work / "out.jsonl",
           "--max-new-tokens", 5)
    # A multimodal model's adapter is written for its language model, whose modules have other names within it.
    for adapter in ("none",) if sees_images(golden) else ("none", "lora"):
        run = work / adapter
        common = (f"model.path={golden}", f"data.train={rows}", f"output_dir={run}", "train.max_steps=3",
                  "optimizer.learning_rate=0.01", f"adapter.method={adapter}")
        temper(program, "check", "sft", *common)
        temper(program, "sft", *common)
        final = run / "final"
        if adapter == "none":
            worst.append(difference(scored(program, work, sequences, "--model", final), load(final), sequences))
        else:
            model = PeftModel.from_pretrained(load(golden), final).eval()
            worst.append(difference(scored(program, work, sequences, "--model", final), model, sequences))
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--temper", default=ROOT / "build" / "temper")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    names = given.names or sorted(d.name for d in GOLDENS.iterdir() if "greedy" in (d / "expected.json").read_text())
    failed = False
    for one in names:
        with tempfile.TemporaryDirectory() as scratch:
            differences = check(given.temper, one, Path(scratch))
        source = ROOT / "temper" / "models" / f"{one}.cpp"
        lines = len(source.read_text().splitlines()) if source.exists() else 0
        failed = failed or max(differences) > TOLERANCE
        shown = "  ".join(f"{kind} {value:.1e}" for kind, value in zip(("golden", "sft", "lora"), differences))
        print(f"{one:18s} {shown}  {lines} lines", flush=True)
    sys.exit(failed)
