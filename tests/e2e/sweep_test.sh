#!/usr/bin/env bash
# temper sweep: a run for each combination, as it is alone; and temper report of a run and its fork. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
cat > run.yaml <<'Y'
model: {path: model}
data: {train: rows.jsonl, eval: rows.jsonl}
adapter: {method: lora, rank: 4}
train: {batch_size: 4, max_steps: 6, eval_every: 3}
metrics: {sinks: [jsonl]}
Y
numbers_of() { sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes)": [^,}]*,? ?//g' "$1/metrics.jsonl"; }
same_run() {
  cmp <(numbers_of "$1") <(numbers_of "$2") || fail "$1: other metrics than $2"
  cmp "$1/final/adapter_model.safetensors" "$2/final/adapter_model.safetensors" || fail "$1: another final/ than $2"
  cmp "$1/manifest.jsonl" "$2/manifest.jsonl" || fail "$1: another manifest than $2"
}
"$temper" sweep sft run.yaml output_dir=s --over optimizer.learning_rate=1e-3,1e-2 --over adapter.rank=2,4 --seeds 0,1 > log 2>&1 || fail "sweep: $(cat log)"
[ "$(ls -d s/*/ | wc -l)" = 8 ] || fail "runs: $(ls s)"
grep -q 'learning_rate=1e-3,rank=2,seed=1' s/report.html || fail "no run in the report"
"$temper" sft run.yaml output_dir=alone optimizer.learning_rate=1e-2 adapter.rank=2 seed=1 > /dev/null || fail "alone: $?"
same_run s/learning_rate=1e-2,rank=2,seed=1 alone
grep -q 'learning_rate: 0.01 ' s/learning_rate=1e-2,rank=2,seed=1/config.yaml || fail "its settings are not in its config"

# The same command resumes: complete runs stay, one that was killed goes on.
rm -r s/learning_rate=1e-2,rank=2,seed=1/final s/learning_rate=1e-2,rank=2,seed=1/checkpoints
"$temper" sweep sft run.yaml output_dir=s --over optimizer.learning_rate=1e-3,1e-2 --over adapter.rank=2,4 --seeds 0,1 > log 2>&1 || fail "again: $(cat log)"
[ "$(grep -c 'this run is complete' log)" = 7 ] || fail "again: $(cat log)"
same_run s/learning_rate=1e-2,rank=2,seed=1 alone

# A wrong combination ends it before any run.
for wrong in '--over optimizer.learning_rate=1e-3,x' '--over adapter.rank=4,-1' '--over model.path=model,nothing' '--over adapter.rank' '--over optimizer.learning_rates=1' \
  '--over output_dir=a,b' '--over seed=1,1' '--stop-worst 0.5'; do
  "$temper" sweep sft run.yaml output_dir=wrong $wrong > log 2>&1
  [ $? = 2 ] && [ ! -e wrong ] || fail "$wrong: $(cat log)"
done
"$temper" sweep generate run.yaml > log 2>&1
[ $? = 2 ] || fail "sweep generate: $(cat log)"

# The worst end after a step, whole: by the loss of the evaluation there.
worst() { "$temper" sweep sft run.yaml output_dir=w --over optimizer.learning_rate=1e-2,1e-9,3e-2,1e-8 --stop-worst 0.5 --by eval/loss --after 3 > log 2>&1 || fail "worst: $(cat log)"; }
for time in first second; do
  worst
  for rate in 1e-9 1e-8; do
    grep -q "learning_rate=$rate ends after step 3: eval/loss" log || fail "$time: $rate is not named: $(cat log)"
    [ "$(tail -1 w/learning_rate=$rate/manifest.jsonl | grep -c '"step": 3,.*"final"')" = 1 ] && [ -e w/learning_rate=$rate/final/adapter_model.safetensors ] \
      || fail "$time: $rate is not whole"
  done
done
"$temper" sft run.yaml output_dir=best optimizer.learning_rate=3e-2 > /dev/null
cmp <(numbers_of best) <(numbers_of w/learning_rate=3e-2) || fail "a run that goes on has other metrics than alone"
cmp best/final/adapter_model.safetensors w/learning_rate=3e-2/final/adapter_model.safetensors || fail "a run that goes on ends otherwise than alone"

# A run and its fork, paired by step: the page and the table have the mean difference and its interval.
"$temper" sft run.yaml output_dir=run train.max_steps=8 train.save_every=4 > /dev/null
"$temper" fork run@4 --output fork optimizer.learning_rate=1e-2 > /dev/null || fail "fork: $?"
"$temper" report run fork --output both.html > log || fail "report: $(cat log)"
grep -q 'fork less run, paired by step, after step 4' both.html || fail "no differences in the page"
python3 - <<'P' || fail "differences: $(cat log)"
import json
losses = lambda run: {r["step"]: r["loss"] for r in map(json.loads, open(run + "/metrics.jsonl")) if "loss" in r and r["step"] > 4}
a, b = losses("run"), losses("fork")
d = [b[s] - a[s] for s in a]
assert len(d) == 4 and list(a) == list(b)
mean = sum(d) / 4
half = 3.182446305284263 * (sum((x - mean) ** 2 for x in d) / 3 / 4) ** 0.5  # Student's t, 3 degrees of freedom
words = next(line for line in open("log") if line.split()[0] == "loss").split()
assert words[1] == "4" and abs(float(words[4]) - mean) < 1e-12
assert abs(float(words[5]) - (mean - half)) < 1e-9 and abs(float(words[7]) - (mean + half)) < 1e-9
P
"$temper" report run best --output other.html > log && ! grep -q 'paired by step' log || fail "two runs that are no fork of each other"
exit $bad
