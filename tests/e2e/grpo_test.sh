#!/usr/bin/env bash
# Reinforcement learning from the command line: the sampler is the trainer to the bit, a run that is killed ends with
# the uninterrupted run's bits, ranks agree with one, rewards that misbehave hold nothing up. $1: the program.
# Part of `make test`.
set -euo pipefail
. "$(dirname "$0")/common.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

odd_model
awk 'BEGIN { for (i = 0; i < 40; ++i) { printf "{\"prompt_ids\": ["; n = 1 + i % 29; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; printf "], \"row\": %d}\n", i } }' > prompts.jsonl
# The share of even ids in a completion: something that sampling varies and training can raise.
even_reward
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 8, save_every: 2, micro_batch_tokens: 128}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {group_size: 4, prompts_per_rollout: 3, beta: 0.02}
rollout: {max_new_tokens: 9, temperature: 0.9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y

for method in none lora; do
  "$temper" grpo run.yaml output_dir=whole-$method adapter.method=$method adapter.rank=4
  zero_diffs whole-$method/metrics.jsonl
  [ "$(value whole-$method/metrics.jsonl sampler_trainer_max_abs_diff | wc -l)" = 8 ] || fail "$method: a first update without its comparison"
  for delay in 0.3 0.6; do
    rm -rf killed
    killed_after $delay "$temper" grpo run.yaml output_dir=killed adapter.method=$method adapter.rank=4 || true
    "$temper" grpo run.yaml output_dir=killed adapter.method=$method adapter.rank=4 > /dev/null
    cmp whole-$method/final/*model.safetensors killed/final/*model.safetensors || fail "$method: weights of a run killed after $delay s differ"
    cmp <(numbers whole-$method/metrics.jsonl) <(numbers killed/metrics.jsonl) || fail "$method: metrics of a run killed after $delay s differ"
    for step in 1 4 8; do cmp whole-$method/rollouts/step-$step.jsonl killed/rollouts/step-$step.jsonl || fail "rollouts of step $step differ"; done
  done
done
OMP_NUM_THREADS=1 "$temper" grpo run.yaml output_dir=one-thread
cmp whole-none/final/model.safetensors one-thread/final/model.safetensors || fail "one thread gives other weights"
"$temper" grpo run.yaml output_dir=small rollout.cache_bytes=200000 train.max_steps=2
cmp whole-none/rollouts/step-2.jsonl small/rollouts/step-2.jsonl || fail "a small cache changed a sample"

# Two ranks sample what one does; sums in another order move the last digits.
"$temper" grpo --nproc 2 run.yaml output_dir=two train.max_steps=1
cmp whole-none/rollouts/step-1.jsonl two/rollouts/step-1.jsonl || fail "two ranks sample other completions"
zero_diffs two/metrics.jsonl
paste <(value whole-none/metrics.jsonl grad_norm | head -1) <(value two/metrics.jsonl grad_norm) | awk '{ d = ($1 - $2) / $1; exit d < 1e-5 && d > -1e-5 ? 0 : 1 }' || fail "two ranks give another gradient"

# Rollouts have what the rewards gave, before shaping, and who sampled them.
for field in reward penalty policy_version; do
  [ "$(grep -c "\"$field\":" whole-none/rollouts/step-8.jsonl)" = $([ $field = penalty ] && echo 0 || echo 12) ] || fail "rollouts: $field"
done
grep -q '"policy_version": *7[,}]' whole-none/rollouts/step-8.jsonl || fail "rollouts of step 8 are not of the policy after 7 updates"

# Every algorithm runs, with several updates a batch; bfloat16 is as exact.
for algorithm in $("$temper" list algorithms | awk '$1 != "ppo" { print $1 }'); do
  refills=rl.max_refills=2
  [ $algorithm = reinforce_plus_plus ] && refills=  # it has no dynamic sampling
  "$temper" grpo run.yaml output_dir=a-$algorithm rl.algorithm=$algorithm rl.minibatches=2 rl.iterations=2 train.max_steps=8 $refills model.dtype=bfloat16 > /dev/null
  zero_diffs a-$algorithm/metrics.jsonl
  [ "$(value a-$algorithm/metrics.jsonl sampler_trainer_max_abs_diff | wc -l)" = 2 ] || fail "$algorithm: not one comparison a rollout"
done
"$temper" grpo run.yaml output_dir=learn train.max_steps=60 train.save_every=0 rl.beta=0 optimizer.learning_rate=1e-2 > /dev/null
value learn/metrics.jsonl reward_mean | awk 'NR <= 10 { a += $1 } NR > 50 { b += $1 } END { exit b > a + 1.5 ? 0 : 1 }' || fail "the reward did not rise"

# Rewards that hang, end, or talk nonsense cost their sample alone.
cat > bad.sh <<'S'
while read -r line; do
  case $line in *'"row":1,'*) sleep 600 & sleep 600 ;; *'"row":2,'*) echo nonsense; continue ;; *'"row":3,'*) exit 3 ;; esac
  echo 0.5
done
S
start=$SECONDS
"$temper" grpo run.yaml output_dir=bad data.shuffle=false train.max_steps=1 rl.prompts_per_rollout=4 'rewards=[{command: [sh, bad.sh], timeout_seconds: 3, start_timeout_seconds: 3, workers: 4}]' > /dev/null
[ $((SECONDS - start)) -lt 200 ] || fail "a reward that hangs held up the run"
for what in reward_timeouts reward_crashes reward_malformed; do [ "$(value bad/metrics.jsonl $what)" -gt 0 ] || fail "$what were not counted"; done
status=0; "$temper" grpo run.yaml output_dir=stop 'rewards=[{command: [sh, -c, "exit 7"], on_failure: stop}]' 2> err || status=$?
[ $status = 1 ] && grep -q "status 7" err || fail "on_failure: stop: $status $(cat err)"
# Rewards that never answer rightly end the run after three rollouts; fewer of them are a warning, which has the first
# cause of any rank. The first failure is told at once.
for ranks in 1 2; do
  status=0; "$temper" grpo --nproc $ranks run.yaml output_dir=none-$ranks 'rewards=[{name: sh, command: [sh, -c, "while read -r l; do echo why; done"]}]' > err 2>&1 || status=$?
  [ $status = 1 ] && grep -q "rewards failed on all completions of 3 rollouts in a row (the first failure: sh: sh answered .why" err || fail "no reward answers: $status $(cat err)"
  grep -q "warning: rewards failed 12 times (the first: sh: sh answered" err || fail "no warning: $(cat err)"
  [ "$(grep -n 'warning: the reward sh: sh answered' err | cut -d: -f1)" -lt "$(grep -n 'warning: rewards failed [0-9]' err | head -1 | cut -d: -f1)" ] || fail "the first failure is not told at once: $(cat err)"
  [ "$(wc -l < none-$ranks/metrics.jsonl)" = 2 ] || fail "not two steps without rewards"
done
# A program that dies whenever it is started ends the run at once, unless the config says what a failure is.
status=0; "$temper" grpo run.yaml output_dir=dead 'rewards=[{command: [sh, -c, "echo why >&2; exit 7"]}]' > err 2>&1 || status=$?
[ $status = 1 ] && grep -q "the reward sh (.sh -c echo why >&2; exit 7.) was started 5 times and died each time before it read a request: it exited with status 7: why" err || fail "a dead reward: $status $(cat err)"
[ ! -s dead/metrics.jsonl ] || fail "a step without rewards"
"$temper" grpo run.yaml output_dir=zeros train.max_steps=2 'rewards=[{name: even, command: [sh, even.sh]}, {command: [sh, -c, "echo x >> starts; exit 7"], on_failure: zero}]' > err 2>&1 || fail "a dead reward under on_failure: zero: $(cat err)"
grep -q 'the reward sh.* was started 5 times and died each time.*it is not started any more' err && [ "$(wc -l < starts)" -lt 16 ] || fail "a dead reward: $(wc -l < starts) starts: $(cat err)"
python3 -c '
import json
rows = [json.loads(line) for line in open("zeros/metrics.jsonl")]
assert len(rows) == 2 and all(row["reward_crashes"] > 5 for row in rows), rows' || fail "crashes of a dead reward are not counted"
"$temper" grpo run.yaml output_dir=none-2 'rewards=[{name: sh, command: [sh, even.sh]}]' > /dev/null || fail "a run whose reward was mended does not resume"
"$temper" grpo run.yaml output_dir=once train.max_steps=1 'rewards=[{command: [cat]}]' 2> /dev/null || fail "one rollout without rewards ended the run"

# A run's rollouts are the run again; those of another policy are told of, or refused.
cat whole-none/rollouts/step-{1,2,3,4,5,6,7,8}.jsonl > all.jsonl
"$temper" grpo run.yaml output_dir=again rl.replay=all.jsonl rl.on_mismatch=stop > err 2>&1 || fail "a run's own rollouts, stop: $(cat err)"
cmp whole-none/final/model.safetensors again/final/model.safetensors || fail "training on the file is not the run"
grep -q "another policy" err && fail "a run's own rollouts: $(cat err)"
for ranks in 1 2; do
  "$temper" grpo --nproc $ranks run.yaml output_dir=theirs-$ranks rl.replay=whole-none/rollouts/step-8.jsonl train.max_steps=1 > err 2>&1 || fail "another policy's rollouts: $(cat err)"
  [ "$(grep -c "warning: whole-none/rollouts/step-8.jsonl: another policy sampled its completions" err)" = 1 ] || fail "another policy's rollouts: $(cat err)"
  status=0; "$temper" grpo --nproc $ranks run.yaml output_dir=theirs-stop-$ranks rl.replay=whole-none/rollouts/step-8.jsonl train.max_steps=1 rl.on_mismatch=stop 2> err || status=$?
  [ $status = 1 ] && grep -q "step-8.jsonl: another policy .* rl.on_mismatch: correct trains" err || fail "another policy's rollouts, stop: $status $(cat err)"
done

# Prompts that may go on beyond the positions that the model was made for.
cp -r model narrow && sed -i 's/"vocab_size"/"max_position_embeddings": 10, "vocab_size"/' narrow/config.json
"$temper" grpo run.yaml output_dir=narrow-run model.path=narrow data.shuffle=false train.max_steps=2 > err 2>&1 || fail "positions: $(cat err)"
[ "$(grep -c max_position_embeddings err)" = 1 ] && grep -q "warning: prompts.jsonl:2: 2 tokens and 9 new ones (rollout.max_new_tokens) are more than the model's max_position_embeddings, 10; so are those of 1 more rows" err || fail "positions: $(cat err)"

refused() { status=0; "$temper" grpo run.yaml output_dir=refused "${@:2}" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$1" err || fail "expected $1, got $status: $(cat err)"; }
refused "gsm8k" 'rewards=[{name: gsm8kk}]'
refused "not found in PATH" 'rewards=[{command: [no-such-program]}]'
refused "tokenizer" 'rewards=[{name: gsm8k}]'
refused "adapter.dropout" adapter.method=lora adapter.dropout=0.1
printf "{\"text\": 1}\n" > rows.jsonl; refused "prompt_ids" data.train=rows.jsonl
refused "rl.algorithm" rl.algorithm=gppo
echo ok
