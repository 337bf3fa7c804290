#!/usr/bin/env bash
# Preference tuning, reinforcement learning, reward models and distillation on meshes of ranks: one rank's losses,
# samples and files. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/mesh.sh"

even_reward
base="train.max_steps=3 train.micro_batch_tokens=48 optimizer.learning_rate=1e-3"
rl="data.train=prompts.jsonl rl.group_size=3 rl.prompts_per_rollout=3 rl.minibatches=2 rollout.max_new_tokens=6"
rewards='rewards=[{name: even, command: [sh, even.sh]}]'
pairs="data.train=pairs.jsonl data.eval=pairs.jsonl train.batch_size=3"
check() { # VERB NAME MODEL ARGUMENTS
  local verb=$1 name=$2
  shift 2
  run "$verb" "$name" "$@" $base
  for mesh in $meshes; do
    IFS=: read -r ranks fsdp tensor <<< "$mesh"
    out=$name-$ranks-$fsdp-$tensor
    run "$verb" "$out" --nproc "$ranks" "$@" $base mesh.fsdp="$fsdp" mesh.tensor="$tensor"
    same "$name" "$out"
    same_files "$name" "$out"
    [ -d "$name/rollouts" ] || continue
    grep -h -o '"sampler_trainer_max_abs_diff": [^,}]*' "$out/metrics.jsonl" | grep -v ': 0$' | grep -v ': 0.0$' && fail "$out: the sampler is not the trainer"
    for step in 1 3; do
      diff <(grep -o '"completion_tokens": *[^]]*' "$name/rollouts/step-$step.jsonl") <(grep -o '"completion_tokens": *[^]]*' "$out/rollouts/step-$step.jsonl") > /dev/null || fail "$out samples other tokens"
    done
  done
}
for model in $families; do
  check dpo dpo-$model model.path=$model $pairs
  check grpo grpo-$model model.path=$model $rl "$rewards"
done
check dpo dpo-lora model.path=qwen3 $pairs adapter.method=lora adapter.rank=3
check grpo grpo-lora model.path=gemma2 $rl "$rewards" adapter.method=lora adapter.rank=3
meshes="2:2:1 4:2:2"
check ppo ppo model.path=qwen3 $rl "$rewards"
check reward reward model.path=llama $pairs
check distill distill model.path=qwen3 distill.teacher=llama data.train=rows.jsonl data.eval=rows.jsonl train.batch_size=4
exit $bad
