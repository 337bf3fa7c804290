#!/usr/bin/env bash
# PPO from the command line: a run that is killed ends with the uninterrupted run's bits, ranks agree with one, critic/
# is a model, and what is wrong is said before anything is trained. $1: the program.
set -euo pipefail
. "$(dirname "$0")/common.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

odd_model
awk 'BEGIN { for (i = 0; i < 40; ++i) { printf "{\"prompt_ids\": ["; n = 1 + i % 29; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; printf "], \"row\": %d}\n", i } }' > prompts.jsonl
even_reward
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 8, save_every: 1, micro_batch_tokens: 128}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {prompts_per_rollout: 8, minibatches: 2, iterations: 2}
rollout: {max_new_tokens: 9, temperature: 0.9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y

"$temper" ppo run.yaml output_dir=whole > /dev/null
for name in value_loss critic_grad_norm value_clip_fraction returns_mean explained_variance kl clip_fraction loss grad_norm critic_learning_rate; do
  [ "$(value whole/metrics.jsonl $name | wc -l)" = 8 ] || fail "no $name in every row"
done
[ "$(value whole/metrics.jsonl sampler_trainer_max_abs_diff | tr '\n' ' ')" = "0 0 " ] || fail "the sampler is not the trainer"
for delay in 0.4 0.7 1.0; do
  rm -rf killed
  killed_after $delay "$temper" ppo run.yaml output_dir=killed > /dev/null || true
  "$temper" ppo run.yaml output_dir=killed > /dev/null
  for model in final critic; do cmp whole/$model/model.safetensors killed/$model/model.safetensors || fail "$model/ of a run killed after $delay s differs"; done
  cmp <(numbers whole/metrics.jsonl) <(numbers killed/metrics.jsonl) || fail "metrics of a run killed after $delay s differ"
done
OMP_NUM_THREADS=1 "$temper" ppo run.yaml output_dir=one-thread > /dev/null
cmp whole/critic/model.safetensors one-thread/critic/model.safetensors || fail "one thread gives another critic"
"$temper" ppo whole/config.yaml output_dir=resolved > /dev/null
cmp whole/critic/model.safetensors resolved/critic/model.safetensors || fail "the resolved config is another run"

# Two ranks sample and learn what one does, but for the order of sums.
for method in none lora; do
  set -- adapter.method=$method adapter.rank=4 ppo.share_base=$([ $method = lora ] && echo true || echo false) optimizer.name=sgd optimizer.learning_rate=1e-2
  "$temper" ppo run.yaml output_dir=one-$method "$@" > /dev/null
  "$temper" ppo --nproc 2 run.yaml output_dir=two-$method "$@" > /dev/null
  cmp one-$method/rollouts/step-1.jsonl two-$method/rollouts/step-1.jsonl || fail "two ranks sample other completions"
  for name in loss value_loss kl returns_mean; do
    paste <(value one-$method/metrics.jsonl $name | head -4) <(value two-$method/metrics.jsonl $name | head -4) |
      awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6) exit 1 }' || fail "$method: two ranks give another $name"
  done
  [ -f two-$method/critic/model.safetensors ] || fail "two ranks leave no critic/"
done

# critic/ is a model that goes on, and a reward.
"$temper" ppo run.yaml output_dir=onward model.path=whole/final ppo.critic=whole/critic train.max_steps=2 'rewards=[{model: whole/critic, name: critic}]' > /dev/null
[ -f onward/critic/config.json ] || fail "a critic did not go on"

refused() { status=0; "$temper" ppo run.yaml output_dir=refused "${@:2}" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$1" err && [ "$(wc -l < err)" = 1 ] || fail "expected $1, got $status: $(cat err)"; }
refused "ppo.critic: model: no critic: it has no scalar head" ppo.critic=model
refused "ppo.critic: critic: no model at nowhere" ppo.critic=nowhere
sed 's/"vocab_size": 331/"vocab_size": 340/' config.json > other.json
"$temper" init --config other.json --output other > /dev/null
"$temper" ppo run.yaml output_dir=larger model.path=other train.max_steps=1 > /dev/null
refused "has 340 tokens, the policy 331" ppo.critic=larger/critic
refused "adapter.dropout" adapter.method=lora adapter.dropout=0.1
refused "expected ppo" rl.algorithm=rloo
refused "ppo.share_base" ppo.share_base=true
refused "ppo.gamma" ppo.gamma=2
refused "rl.importance" rl.importance=sequence
refused 'unknown key `rl.dynamic_sampling`; it belongs to `temper grpo`' rl.dynamic_sampling=true
grep -q zero_std_groups whole/metrics.jsonl && fail "groups of one completion without variance"
status=0; "$temper" grpo run.yaml output_dir=refused rl.algorithm=ppo 2> err > /dev/null || status=$?
[ $status = 2 ] && grep -q "temper ppo" err || fail "grpo with ppo: $status $(cat err)"
"$temper" ppo --help | grep "ppo.gae_lambda" > /dev/null || fail "help without ppo.gae_lambda"
"$temper" list algorithms | grep "^ppo" > /dev/null || fail "list algorithms without ppo"
echo ok
