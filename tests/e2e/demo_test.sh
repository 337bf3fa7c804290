#!/usr/bin/env bash
# The demo from start to end, cut short; what it learns is seen by running it whole. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"

for run in first again; do  # an earlier demo is replaced
  "$temper" demo --output d --sft-steps 3 --rl-steps 2 > "$run.log" || fail "the $run demo: $?"
  grep -q '^accuracy on 300 sums that were not trained: 0 %' "$run.log" || fail "$run: no accuracy"
done
for file in model/tokenizer.json sums.jsonl test.jsonl warm-up/final/model.safetensors grpo/final/model.safetensors \
    grpo/report.html grpo/rollouts/step-2.jsonl; do
  [ -s "d/$file" ] || fail "no $file"
done
[ "$(grep -c . d/grpo/metrics.jsonl)" = 2 ] || fail "not two rows of metrics"
[ "$(cat d/test.jsonl d/sums.jsonl | cut -d, -f1 | sort | uniq -d | grep -cFf <(cut -d, -f1 d/test.jsonl))" = 0 ] ||
  fail "a test row is trained"
"$temper" eval --model d/grpo/final --input d/test.jsonl --reward exact --max-new-tokens 4 > eval.log || fail "eval: $?"
grep -q '^pass@1' eval.log || fail "eval prints no pass@1"

mkdir other && touch other/mine
"$temper" demo --output other 2> error.log && fail "another directory is overwritten"
grep -q 'holds something else' error.log && [ -e other/mine ] || fail "another directory: $(cat error.log)"
exit $bad
