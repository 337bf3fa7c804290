#!/usr/bin/env bash
# The manifest of a run: one chain of lines, the same however often the run was killed. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
even_reward
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
for i in $(seq 12); do echo "{\"prompt_ids\": [$((3 + i)), $((7 + i)), 5]}"; done > prompts.jsonl
common='model.path=model optimizer.learning_rate=1e-3 metrics.sinks=jsonl train.save_every=2'
sft() { "$temper" sft $common data.train=rows.jsonl train.batch_size=4 train.max_steps=6 "$@" > last.log 2>&1 || fail "sft $*: $(cat last.log)"; }
grpo() {
  "$temper" grpo $common data.train=prompts.jsonl 'rewards=[{name: even, command: [sh, even.sh]}]' rl.prompts_per_rollout=2 rl.group_size=4 \
    rollout.max_new_tokens=8 train.max_steps=6 "$@" > last.log 2>&1 || fail "grpo $*: $(cat last.log)"
}
# chain RUN [AFTER]: the lines follow each other, and say what the other files hold.
chain() {
  python3 - "$@" <<'P' || fail "$1/manifest.jsonl"
import hashlib, json, pathlib, sys
run, after = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
digest = lambda data: hashlib.sha256(data).hexdigest()
texts = (run / "manifest.jsonl").read_bytes().split(b"\n")
assert texts.pop() == b""
lines = [json.loads(t) for t in texts]
assert all(line["previous"] == digest(before) for line, before in zip(lines[1:], texts)), "the chain"
first, steps = lines[0], [line for line in lines if "step" in line]
assert digest(open("model/model.safetensors", "rb").read()) in [f["sha256"] for f in first["base"]] and {"rows", "config", "program", "mesh"} <= set(first)
rows = [row for row in map(json.loads, open(run / "metrics.jsonl")) if "loss" in row and row["step"] > after]
assert [(s["step"], s["loss"], s["grad_norm"]) for s in steps] == [(r["step"], r["loss"], r["grad_norm"]) for r in rows], "not as in metrics.jsonl"
assert [s["step"] for s in steps] == list(range(after + 1, after + 1 + len(steps))), "the steps"
for step in steps:
    file = run / "rollouts" / f"step-{step['step']}.jsonl"
    assert step.get("rollout") == (digest(file.read_bytes()) if file.exists() else None), "rollout"
kept = [checkpoint for checkpoint in (run / "checkpoints").iterdir() if int(checkpoint.name[5:]) > after]
assert kept
for checkpoint in kept:
    weights = next(s["weights"] for s in steps if s["step"] == int(checkpoint.name[5:]))
    assert weights["policy"] == digest((checkpoint / "policy.safetensors").read_bytes()), "weights"
for name, sha in steps[-1]["final"].items():
    assert sha == digest((run / name).read_bytes()), "final"
P
}

sft output_dir=a && chain a
grpo output_dir=g rl.minibatches=2 && chain g
grpo output_dir=ahead rl.max_staleness=1 && chain ahead

# A run that was killed goes on with the chain of its checkpoint, whatever stands behind that.
for way in whole half; do
  cp -r a $way && rm -r $way/final $way/checkpoints/step-6
  [ $way = whole ] || truncate -s -30 $way/manifest.jsonl
  sft output_dir=$way && cmp a/manifest.jsonl $way/manifest.jsonl || fail "$way: another manifest"
done
cp -r g killed && rm -r killed/final killed/checkpoints/step-6
grpo output_dir=killed rl.minibatches=2 && cmp g/manifest.jsonl killed/manifest.jsonl || fail "grpo: another manifest"
for delay in 0.2 0.3 0.4 0.5; do
  killed_after $delay "$temper" sft $common data.train=rows.jsonl train.batch_size=4 train.max_steps=6 output_dir=k > /dev/null 2>&1
done 2> /dev/null
sft output_dir=k && cmp a/manifest.jsonl k/manifest.jsonl || fail "killed at any time: another manifest"

# Where nothing on which results depend has changed the chain just goes on; else a line says so.
sft output_dir=whole train.max_steps=8 && chain whole && [ "$(grep -c '"after": *6' whole/manifest.jsonl)" = 1 ] || fail "no line of other settings"
# A broken chain, and a run without one, go on with a new one that says where it begins.
cp -r a broken && rm -r broken/final broken/checkpoints/step-6 && sed -i '3s/"loss": ./"loss": 9/' broken/manifest.jsonl
sft output_dir=broken && grep -q 'manifest.jsonl:4: step 3: `previous` is not' last.log && chain broken 4 || fail "broken: $(cat last.log)"
cp -r a without && rm -r without/final without/checkpoints/step-6 without/manifest.jsonl
sft output_dir=without && chain without 4
# Two ranks that share out the weights.
"$temper" sft --nproc 2 $common data.train=rows.jsonl train.batch_size=4 train.max_steps=4 mesh.fsdp=2 output_dir=ranks > last.log 2>&1 && chain ranks || fail "ranks: $(cat last.log)"
exit $bad
