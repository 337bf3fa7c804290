#!/usr/bin/env bash
# temper fork and temper verify: runs that go on from others, and whether a run is what its manifest says. $1: the
# program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
even_reward
cp -r model teacher
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
for i in $(seq 12); do echo "{\"prompt_ids\": [$((3 + i)), $((7 + i)), 5], \"chosen_ids\": [9, $i], \"rejected_ids\": [$i, 4]}"; done > pairs.jsonl
common='model.path=model optimizer.learning_rate=1e-3 metrics.sinks=jsonl train.save_every=2 train.max_steps=6'
rows='data.train=rows.jsonl train.batch_size=4'
samples='data.train=pairs.jsonl rl.prompts_per_rollout=2 rollout.max_new_tokens=8'
reward='rewards=[{name: even, command: [sh, even.sh]}]'
train() { "$temper" "$@" > last.log 2>&1 || fail "$*: $(cat last.log)"; }
verifies() { "$temper" verify "$@" > last.log 2>&1 || fail "verify $*: $(cat last.log)"; }
# refuses LINE WORDS RUN..: verify ends with 1 and names the line and what differs.
refuses() {
  local line=$1 words=$2
  shift 2
  "$temper" verify "$@" > last.log 2>&1
  [ $? = 1 ] && grep -q "manifest.jsonl:$line: .*$words" last.log || fail "verify $*: $(cat last.log)"
}

# Every deterministic verb, from the beginning, from checkpoints, and by lot.
train sft $common $rows output_dir=sft
train sft $common $rows output_dir=lora adapter.method=lora adapter.rank=4 adapter.dropout=0.1
train dpo $common data.train=pairs.jsonl train.batch_size=4 output_dir=dpo
train grpo $common $samples "$reward" rl.group_size=4 rl.minibatches=2 rl.iterations=2 output_dir=grpo
train grpo $common $samples "$reward" rl.group_size=4 rl.max_staleness=1 output_dir=ahead
train ppo $common $samples "$reward" rl.minibatches=2 output_dir=ppo
train distill $common $rows distill.teacher=teacher distill.strategy=feature_projection output_dir=distill
for run in sft lora dpo grpo ahead ppo distill; do
  verifies $run && grep -q '6 of 6 steps were repeated$' last.log || fail "$run: $(cat last.log)"
  verifies $run --steps 2 --seed 5 && grep -q '2 of 6 steps were repeated (--seed 5)' last.log || fail "$run: $(cat last.log)"
done
OMP_NUM_THREADS=1 verifies grpo --fraction 0.2
# The tensors of a repeated step, and the first one that differs from another run's.
"$temper" debug sft 3 '*norm*' > last.log 2>&1 && grep -q '^gradient .*norm.*rank 0: norm' last.log && ! grep -q embed last.log || fail "debug: $(cat last.log)"
"$temper" debug sft 3 --against sft | grep -q 'are the same' || fail "debug --against itself"
train sft $common $rows output_dir=warmer optimizer.learning_rate=2e-3
"$temper" debug sft 1 --against warmer > last.log 2>&1; [ $? = 1 ] && grep -q '^sft: updated ' last.log || fail "the first step differs once it is made: $(cat last.log)"
"$temper" debug sft 2 --against warmer > last.log 2>&1; [ $? = 1 ] && grep -q '^sft: weight ' last.log || fail "the second differs from its beginning: $(cat last.log)"
for wrong in 'sft 9' 'sft 0' 'sft 2 nothing' 'model 1'; do
  "$temper" debug $wrong > last.log 2>&1; [ $? = 2 ] && [ "$(wc -l < last.log)" = 1 ] || fail "debug $wrong: $(cat last.log)"
done
[ -z "$(ls -d "${TMPDIR:-/tmp}"/temper-worker-$$-* 2> /dev/null)" ] || fail "verify left files"
# Two ranks; on one of them within rounding.
train sft --nproc 2 $common $rows output_dir=ranks mesh.fsdp=2
verifies ranks
verifies ranks --nproc 1 --steps 3
# A moved run, and moved inputs.
mkdir elsewhere && mv dpo elsewhere/ && verifies elsewhere/dpo
mv pairs.jsonl elsewhere/
refuses 1 'pairs.jsonl.*not there' elsewhere/dpo
verifies elsewhere/dpo data.train=elsewhere/pairs.jsonl
mv elsewhere/pairs.jsonl .
# One that a kill interrupted, and one whose plan was changed: its earlier steps were made with settings that are gone.
cp -r sft killed && rm -r killed/final killed/checkpoints/step-6
train sft $common $rows output_dir=killed && verifies killed
cp -r sft longer && train sft $common $rows output_dir=longer train.max_steps=8
verifies longer && grep -q 'steps up to 6 are not repeated' last.log && grep -q '2 of 8 steps' last.log || fail "longer: $(cat last.log)"

# What was changed is found: rows, the base, a step, a weight, final/, rollouts, a chain that was computed again.
changed() { rm -rf changed && cp -r "$1" changed; }
sed -i '7s/5/6/' rows.jsonl && refuses 1 'rows.jsonl.*SHA-256' sft && sed -i '7s/6/5/' rows.jsonl
cp model/model.safetensors kept && printf X | dd of=model/model.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null
refuses 1 'model.safetensors.*SHA-256' sft && mv kept model/model.safetensors
changed sft && sed -i '4s/"loss": ./"loss": 9/' changed/manifest.jsonl && refuses 5 'step 4: `previous`' changed
changed sft && sed -i 's/learning_rate: 0.001/learning_rate: 0.002/' changed/config.yaml && refuses 1 'settings' changed
changed sft && sed -i '3s/"loss": ./"loss": 9/' changed/metrics.jsonl && refuses 4 'step 3: loss: found 9' changed
changed sft && printf XXX | dd of=changed/final/model.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null && refuses 7 'step 6: final/model.safetensors' changed
changed sft && printf XXX | dd of=changed/checkpoints/step-4/policy.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null && refuses 5 'step 4: .*policy' changed
changed grpo && sed -i '2s/"reward": */&-/' changed/rollouts/step-1.jsonl && refuses 2 'step 1: rollouts' changed
# chain RUN PYTHON: changes the lines and computes the chain again.
chain() {
  python3 - "$@" <<'P'
import hashlib, json, sys
run = sys.argv[1]
digest = lambda data: hashlib.sha256(data).hexdigest()
lines = [json.loads(line) for line in open(run + "/manifest.jsonl")]
metrics = [json.loads(line) for line in open(run + "/metrics.jsonl")]
exec(sys.argv[2])
open(run + "/metrics.jsonl", "w").writelines(json.dumps(row) + "\n" for row in metrics)
with open(run + "/manifest.jsonl", "w") as f:
    before = None
    for line in lines:
        line["previous"] = digest(before.encode()) if before else ""
        before = json.dumps(line)
        f.write(before + "\n")
P
}
changed sft && chain changed 'pass' && verifies changed
changed sft && chain changed 'lines[3]["loss"] = metrics[2]["loss"] = 4.5' && refuses 4 'step 3: loss: found .*expected 4.5' changed
changed sft && printf XXX | dd of=changed/final/model.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null
chain changed 'lines[6]["final"]["final/model.safetensors"] = digest(open(run + "/final/model.safetensors", "rb").read())'
refuses 7 'step 6: final/model.safetensors' changed
changed lora && printf XXX | dd of=changed/checkpoints/step-4/policy.safetensors bs=1 seek=2000 conv=notrunc 2> /dev/null
python3 -c '
import json
path = "changed/checkpoints/step-4/state.json"
state = json.load(open(path))
del state["hash"], state["files"]
json.dump(state, open(path, "w"))'
chain changed 'lines[4]["weights"]["policy"] = digest(open(run + "/checkpoints/step-4/policy.safetensors", "rb").read())'
refuses 5 'step 4: weights of policy' changed
changed grpo && sed -i '2s/"reward": */&-/' changed/rollouts/step-1.jsonl
chain changed 'lines[1]["rollout"] = digest(open(run + "/rollouts/step-1.jsonl", "rb").read())' && refuses 2 'step 1: rollout: found' changed
"$temper" verify model > last.log 2>&1
[ $? = 2 ] && grep -q 'config.yaml' last.log || fail "no run: $(cat last.log)"
rm changed/manifest.jsonl && "$temper" verify changed > last.log 2>&1
[ $? = 2 ] && grep -q 'manifest.jsonl: there is none' last.log || fail "no manifest: $(cat last.log)"

# A fork without a setting ends as the run did; the run is as it was.
everything() { (cd "$1" && find . -type f -exec sha256sum {} + | sort); }
steps_of() { sed -n "$2,\$p" "$1/metrics.jsonl" | sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes|[a-z_]*_seconds|rollout_latency_p[0-9]+)": [^,}]*,? ?//g'; }
for run in sft lora grpo ahead ppo distill; do
  everything $run > before
  train fork $run@4 --output fork-$run
  cmp <(steps_of $run 5) <(steps_of fork-$run 1) || fail "fork of $run: other metrics"
  diff -r $run/final fork-$run/final || fail "fork of $run: another final/"
  [ ! -d $run/rollouts ] || cmp $run/rollouts/step-5.jsonl fork-$run/rollouts/step-5.jsonl || fail "fork of $run: other rollouts"
  everything $run | cmp - before || fail "fork touched $run"
  verifies fork-$run && grep -q '2 of 2 steps' last.log || fail "fork of $run: $(cat last.log)"
done
# It goes on from its own checkpoint, and from where it began; the chain names the line of the run.
python3 - <<'P' || fail "the fork's chain"
import hashlib, json
run = open("sft/manifest.jsonl", "rb").read().split(b"\n")
first = json.loads(open("fork-sft/manifest.jsonl").readline())
assert first["after"] == 4 and first["previous"] == hashlib.sha256(run[4]).hexdigest()
assert first["weights"] == json.loads(run[4])["weights"]
P
"$temper" fork sft@4 --output fork-sft | grep -q 'run is complete' || fail "a complete fork goes on"
for left in 4 5; do
  train fork sft@4 --output again train.max_steps=8 train.save_every=1
  rm -r again/final again/checkpoints/step-8 again/checkpoints/step-7 again/checkpoints/step-6
  train fork sft@4 --output again train.max_steps=8 train.save_every=1
  verifies again
  cp again/manifest.jsonl again-$left; rm -r again
done
cmp again-4 again-5 || fail "a fork that was killed"
# Other settings; a step without a checkpoint; the beginning; a changed fork is found.
train fork sft@5 --output other optimizer.learning_rate=1e-2 && grep -q 'no checkpoint of step 5: the fork goes on from step 4' last.log || fail "sft@5: $(cat last.log)"
verifies other
! cmp -s other/final/model.safetensors sft/final/model.safetensors || fail "a setting had no effect"
train fork sft@0 --output beginning && cmp beginning/final/model.safetensors sft/final/model.safetensors || fail "sft@0"
rm -rf changed && cp -r other changed && sed -i '2s/"loss": ./"loss": 9/' changed/manifest.jsonl && refuses 3 'previous' changed
rm -rf changed && cp -r other changed && sed -i '$d' changed/manifest.jsonl && refuses "$(grep -c . changed/manifest.jsonl)" 'has no line of it' changed
for bad_fork in 'sft@x --output new' 'nothing --output new' 'sft --output other' 'sft --output model' 'sft --output new output_dir=x' 'sft --output new train.stepz=3' 'sft@4 --output new optimizer.name=lion'; do
  "$temper" fork $bad_fork > last.log 2>&1
  [ $? = 2 ] || fail "fork $bad_fork: $(cat last.log)"
done
[ ! -e new ] || fail "a wrong fork left something"
exit $bad
