#!/usr/bin/env bash
# Runs that are left alone: saves in the background, limits of memory and of what waits, and the verbs that watch and
# compare runs. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
sft() { "$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=jsonl "$@"; }

# Saves in the background leave the bits of a run that waits, at every step and on ranks that share out the weights.
sft output_dir=waits train.max_steps=6 train.save_every=2 train.save_in_background=false > /dev/null || fail "waits: $?"
sft output_dir=goes train.max_steps=6 train.save_every=2 train.save_in_background=true train.profile=6 > /dev/null || fail "goes: $?"
for step in 2 4 6; do
  for file in policy.safetensors policy.optimizer.safetensors; do
    cmp waits/checkpoints/step-$step/$file goes/checkpoints/step-$step/$file || fail "step $step: $file"
  done
done
python3 - goes/trace.json <<'P' || fail "no thread writes checkpoints"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
threads = {e["name"]: e["tid"] for e in events if e.get("ph") == "X" and e["name"] in ("write checkpoint", "checkpoint")}
assert threads["write checkpoint"] != threads["checkpoint"], threads
P
# Steps in the middle are profiled alone, also where a run that was resumed begins with one.
sft output_dir=profiled train.max_steps=2 > /dev/null || fail "profiled: $?"
sft output_dir=profiled train.max_steps=6 'train.profile={first: 3, steps: 2}' > /dev/null || fail "profiled: $?"
sft output_dir=unprofiled train.max_steps=2 'train.profile={first: 3, steps: 2}' > /dev/null || fail "unprofiled: $?"
[ -e unprofiled/trace.json ] && fail "a profile of no step"
python3 - profiled/trace.json goes/trace.json <<'P' || fail "other steps are profiled"
import json, sys
steps = [sum(e.get("name") == "optimizer" for e in json.load(open(path))["traceEvents"]) for path in sys.argv[1:]]
assert steps == [2, 6], steps
P
sft --nproc 2 output_dir=fsdp mesh.fsdp=2 train.max_steps=6 train.save_every=1 train.save_in_background=true > fsdp.log 2>&1 || fail "fsdp: $(cat fsdp.log)"
sft --nproc 2 output_dir=fsdp-waits mesh.fsdp=2 train.max_steps=6 train.save_every=1 train.save_in_background=false > fsdp.log 2>&1 || fail "fsdp: $(cat fsdp.log)"
for step in 4 5 6; do
  cmp fsdp/checkpoints/step-$step/policy.optimizer.safetensors fsdp-waits/checkpoints/step-$step/policy.optimizer.safetensors || fail "fsdp: step $step"
done
[ -z "$(find . -name '.writing*')" ] || fail "left: $(find . -name '.writing*')"

# A killed process leaves whole checkpoints, and the run goes on to the same bits.
killed_after 1 "$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=jsonl \
  output_dir=killed train.max_steps=400 train.save_every=1 train.save_in_background=true > /dev/null 2>&1
sft output_dir=killed train.max_steps=400 train.save_every=1 > /dev/null 2> killed.err || fail "killed: $(cat killed.err)"
! grep -q skipped killed.err || fail "a checkpoint was damaged: $(cat killed.err)"
sft output_dir=not-killed train.max_steps=400 > /dev/null || fail "not killed"
cmp killed/final/model.safetensors not-killed/final/model.safetensors || fail "a killed run ends with other bits"

# A limit of memory: refused where the plan exceeds it, and a check; a run that exceeds it ends with a checkpoint.
sft output_dir=limit train.max_steps=3 train.memory_limit=20MB > /dev/null 2> limit.err
[ $? = 2 ] && grep -q 'train.memory_limit: planned .* of at most 20.0 MB; .*program' limit.err && grep -q 'train.micro_batch_tokens' limit.err || fail "limit: $(cat limit.err)"
[ ! -e limit/checkpoints ] || fail "a refused run began"
"$temper" check sft model.path=model data.train=rows.jsonl output_dir=limit train.memory_limit=20MB > check.log
[ $? = 2 ] && grep -q '^fail *memory_limit' check.log || fail "check: $(cat check.log)"
"$temper" check sft model.path=model data.train=rows.jsonl output_dir=limit train.memory_limit=8GB > check.log || fail "check: $(cat check.log)"
grep -q 'memory_limit' check.log || fail "check does not show the limit: $(cat check.log)"
sft output_dir=limit train.max_steps=3 train.memory_limit=12parsecs 2> limit.err > /dev/null
[ $? = 2 ] && grep -q 'train.memory_limit: found `12parsecs`' limit.err || fail "limit: $(cat limit.err)"

# What waits is bounded, and nothing else changes.
grpo() { "$temper" grpo model.path=model data.train=prompts.jsonl train.max_steps=2 rl.prompts_per_rollout=6 rl.group_size=2 \
  rollout.max_new_tokens=4 metrics.sinks=jsonl 'rewards=[{name: r, command: [sh, -c, "while read -r l; do echo ${#l}; done"]}]' "$@"; }
for i in $(seq 12); do echo "{\"prompt_ids\": [$((3 + i)), 5]}"; done > prompts.jsonl
grpo output_dir=free > /dev/null 2> grpo.err || fail "grpo: $(cat grpo.err)"
grpo output_dir=bounded train.max_inflight=1 > /dev/null 2> grpo.err || fail "grpo: $(cat grpo.err)"
"$temper" diff free bounded > bounded.diff
[ $? = 1 ] && [ "$(cat bounded.diff)" = 'settings:
  train.max_inflight: null -> 1' ] || fail "max_inflight changes results: $(cat bounded.diff)"
grpo output_dir=ahead rl.max_staleness=2 train.max_inflight=1 > /dev/null 2> grpo.err || fail "ahead: $(cat grpo.err)"

# diff: settings, the first step that differs, tensors.
"$temper" diff goes waits > /dev/null; [ $? = 1 ] || fail "diff of settings"
"$temper" diff goes/final waits/final > same || fail "equal models differ: $(cat same)"
[ "$(cat same)" = equal ] || fail "equal: $(cat same)"
sft output_dir=other train.max_steps=6 optimizer.learning_rate=2e-3 > /dev/null
"$temper" diff waits other > other.diff
[ $? = 1 ] && grep -q 'optimizer.learning_rate: 0.001 -> 0.002' other.diff && grep -q 'first difference at step 1: learning_rate' other.diff &&
  grep -q 'embed_tokens.weight: largest difference' other.diff || fail "diff: $(cat other.diff)"
"$temper" diff waits other --json > other.json
python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["equal"] is False and d["metrics"]["step"] == 1 and d["tensors"]["compared"] == len(d["tensors"]["differ"]) > 5, d
assert 0 < d["tensors"]["differ"][0]["max_abs_difference"] < 1, d' < other.json || fail "diff --json"
"$temper" export --model model --output half --dtype bfloat16 > /dev/null 2>&1 && { "$temper" diff model half > half.diff; [ $? = 1 ] && grep -q 'F32 and BF16' half.diff || fail "dtypes: $(cat half.diff)"; }
"$temper" diff waits model 2> err > /dev/null; [ $? = 2 ] && grep -q 'expected two directories of runs' err || fail "diff of a run and a model: $(cat err)"

# report: one run's page anew, several on one page.
mv waits/report.html before.html
"$temper" report waits > /dev/null && cmp before.html waits/report.html || fail "the page made anew is another: $(diff before.html waits/report.html | cut -c1-300)"
"$temper" report waits other --output both.html > /dev/null || fail "report of two runs"
grep -q 'optimizer.learning_rate' both.html && grep -q 'data-name="waits"' both.html && grep -q 'data-name="other"' both.html || fail "report of two runs lacks them"
"$temper" report model 2> err; [ $? = 2 ] && grep -q 'no directory of a run' err || fail "report of a model: $(cat err)"

# top: a complete run, and one that is running until it ends.
[ "$("$temper" top waits --once | grep -c 'not running; step 6 of 6  loss .*tokens/s.*peak memory')" = 1 ] || fail "top: $("$temper" top waits --once)"
"$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=long train.max_steps=200000 metrics.sinks=jsonl > long.log 2>&1 &
run=$!
until_rows long 3 $run
"$temper" top long --once | grep -q '^step .* of 200,000  loss .*left' || fail "top of a running run: $("$temper" top long --once)"
"$temper" top long > top.log & top=$!
kill -TERM $run; wait $run
comes_true has_ended $top || { fail "top outlives its run"; kill $top; }
grep -q 'not running; step' top.log || fail "top: $(cat top.log)"
exit $bad
