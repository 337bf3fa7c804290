#!/usr/bin/env bash
# 500 steps of reinforcement learning, or TEMPER_SOAK_STEPS: no memory, no page of the cache (each batch checks that), no
# descriptor is lost. $1: the program.
set -euo pipefail
. "$(dirname "$0")/common.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

steps=${TEMPER_SOAK_STEPS:-500}
small_model
for i in $(seq 30); do echo "{\"prompt_ids\": [$((3 + i)), $((7 + i)), 5]}"; done > prompts.jsonl
# The program's own open descriptors, as a reward that weighs nothing; every 150th answer never comes.
cat > files.sh <<'S'
n=0
while read -r line; do
  n=$((n + 1)); [ $n = 150 ] && exec sleep 30
  set -- /proc/$PPID/fd/*; echo $#
done
S
# Whether the last token is odd.
echo 'while read -r line; do t=${line#*completion_tokens\":[}; t=${t%%]*}; echo $((${t##*,} % 2)); done' > parity.sh
cat > run.yaml <<Y
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: $steps}
rl: {group_size: 3, prompts_per_rollout: 2, beta: 0.01, iterations: 1}
rollout: {max_new_tokens: 20, cache_bytes: 100000}
rewards:
- {name: parity, command: [sh, parity.sh]}
- {name: files, command: [sh, files.sh], weight: 0, timeout_seconds: 0.2, start_timeout_seconds: 0.1, on_failure: zero, workers: 2}
metrics: {sinks: [jsonl]}
output_dir: run
Y
"$temper" grpo run.yaml 2> warnings || fail "$(cat warnings)"
# highest FIELD FIRST LAST: the highest value of these rows.
highest() { sed -n "$2,$3p" run/metrics.jsonl | grep -o "\"$1\": [^,}]*" | cut -d' ' -f2 | sort -g | tail -1; }
[ "$(grep -c . run/metrics.jsonl)" = "$steps" ] || fail "not $steps rows"
# The allocator takes memory in pieces of some megabytes; a step's tensors lost at every step would be far more.
awk -v early="$(highest peak_memory_bytes 1 100)" -v late="$(highest peak_memory_bytes "$steps" "$steps")" -v steps="$steps" \
  'BEGIN { print "peak memory", early, "after 100 steps,", late, "after", steps; exit late > early + 8e6 }' || fail "memory grows"
awk -v early="$(highest rewards/files 1 100)" -v late="$(highest rewards/files $((steps - 99)) "$steps")" \
  'BEGIN { print "descriptors", early, "within 100 steps,", late, "within the last"; exit early < 3 || late > early }' || fail "descriptors grow"
awk -v most="$(highest rewards/parity 1 "$steps")" 'BEGIN { exit most > 0 ? 0 : 1 }' || fail "no completion was rewarded"
[ "$(highest reward_timeouts "$steps" "$steps")" -gt 10 ] || fail "no worker hung"
[ "$(highest sampler_trainer_max_abs_diff 1 "$steps")" = 0 ] || fail "the sampler is not the trainer"
