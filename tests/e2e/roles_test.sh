#!/usr/bin/env bash
# Ranks with roles of their own: one rank's samples, losses and files, whoever samples and computes the reference; ranks
# that are killed; resuming under other roles; wrong input. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMP_NUM_THREADS=1 TEMPER_TIMEOUT_SECONDS=120
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT

tiny_model 62 32 48 2 2 2 16  # two ranks of tensor parallelism divide it
awk 'BEGIN { for (i = 0; i < 24; ++i) { printf "{\"prompt_ids\": ["; n = 1 + i % 9; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 50; printf "]}\n" } }' > prompts.jsonl
awk 'BEGIN { for (i = 0; i < 12; ++i) printf "{\"prompt_ids\": [%d, 6, 7], \"chosen_ids\": [%d, 9, 2], \"rejected_ids\": [%d, 2]}\n", 5 + i, 20 + i, 40 + i }' > pairs.jsonl
even_reward
sed 's/^while read -r line; do/while read -r line; do sleep 0.1/' even.sh > even_slow.sh
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 4, save_every: 2}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {group_size: 4, prompts_per_rollout: 4, beta: 0.05}
rollout: {max_new_tokens: 7, temperature: 0.9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y
slow='rewards=[{name: even, command: [sh, even_slow.sh]}]'
versions() { for step in $(seq "$2"); do head -1 "$1/rollouts/step-$step.jsonl" | grep -o '"policy_version":[^,}]*' | grep -o '[0-9]*'; done | tr '\n' ' '; }
rollouts() { cat "$1"/rollouts/step-*.jsonl; }
grpo() { local out=$1; shift; "$temper" grpo run.yaml output_dir="$out" "$@" > "$out.log" 2>&1; }
run() { grpo "$@" || fail "$1: $(tail -4 "$1.log")"; }
# start OUT ARGUMENTS: in the background, its process in $launcher.
start() { local out=$1; shift; "$temper" grpo run.yaml output_dir="$out" "$@" > "$out.log" 2>&1 & launcher=$!; }
tokens() { grep -ho '"completion_tokens": *[^]]*' "$1"/rollouts/step-*.jsonl; }
# as ONE OTHER: the same samples bit for bit, the same losses, the same files. like ONE OTHER [PATTERN]: the same
# tokens, where several ranks train; without the files of that pattern.
as() { diff <(rollouts "$1") <(rollouts "$2") > /dev/null || fail "$2 samples otherwise than $1"; like "$@"; }
like() {
  diff <(tokens "$1") <(tokens "$2") > /dev/null || fail "$2 samples other tokens than $1"
  python3 "$here/same_losses.py" "$1/metrics.jsonl" "$2/metrics.jsonl" kl reward_mean grad_norm || fail "$2 differs from $1"
  diff <(cd "$1" && find . -type f ! -name .lock ! -path "${3:-}" | sort) <(cd "$2" && find . -type f ! -name .lock ! -path "${3:-}" | sort) || fail "files of $2"
  value "$2/metrics.jsonl" sampler_trainer_max_abs_diff | grep -v '^0$' && fail "$2: the sampler is not the trainer"
}
# weights ONE OTHER: bit for bit.
weights() { cmp "$1"/final/*model.safetensors "$2"/final/*model.safetensors || fail "$2 leaves other weights than $1"; }
# The process of a rank of the launcher $1.
rank_of() { for p in $(pgrep -P "$1"); do tr '\0' '\n' < /proc/"$p"/environ 2> /dev/null | grep -qx "RANK=$2" && echo "$p"; done; }

for method in none lora; do
  options="adapter.method=$method adapter.rank=3"
  run one-$method $options
  run rollout-$method --nproc 2 $options 'roles.rollout=[1]'
  as one-$method rollout-$method
  weights one-$method rollout-$method
  run both-$method --nproc 3 $options 'roles={rollout: [2], reference: [1, 2]}'
  as one-$method both-$method
  weights one-$method both-$method
  run stale-$method $options rl.max_staleness=1
  run ahead-$method --nproc 3 $options rl.max_staleness=1 'roles={rollout: [1, 2], reference: [2]}'
  as stale-$method ahead-$method
  weights stale-$method ahead-$method
  [ "$(versions ahead-$method 4)" = "0 0 1 2 " ] || fail "ahead: versions $(versions ahead-$method 4)"
done

# Trainers on a mesh of their own, with staleness, which they could not have without those ranks.
run mesh --nproc 3 'roles.rollout=[2]' mesh.fsdp=2
like one-none mesh
run tensor --nproc 3 'roles={rollout: [1], reference: [1]}' mesh.tensor=2
# The rank that samples has the whole model: those that share out its sums round otherwise, and correct for that.
diff <(tokens one-none) <(tokens tensor) > /dev/null || fail "tensor samples other tokens than one-none"
python3 "$here/same_losses.py" one-none/metrics.jsonl tensor/metrics.jsonl kl reward_mean grad_norm || fail "tensor differs from one-none"
# Two ranks hold the model of their roles together: bit for bit what as many ranks of tensor parallelism that train
# would sample.
for method in none lora; do
  options="adapter.method=$method adapter.rank=3"
  run tensor-$method --nproc 2 $options mesh.tensor=2
  run tensor-roles-$method --nproc 4 $options 'roles={rollout: [2, 3], reference: [2, 3], tensor: 2}' mesh.tensor=2
  as tensor-$method tensor-roles-$method
  weights tensor-$method tensor-roles-$method
  run one-tensor-$method --nproc 5 $options rl.max_staleness=1 'roles={rollout: [1, 2, 3, 4], reference: [3, 4], tensor: 2}'
  diff <(tokens stale-$method) <(tokens one-tensor-$method) > /dev/null || fail "one-tensor-$method samples other tokens than stale-$method"
  python3 "$here/same_losses.py" stale-$method/metrics.jsonl one-tensor-$method/metrics.jsonl kl reward_mean grad_norm || fail "one-tensor-$method differs from stale-$method"
done

run fsdp-ahead --nproc 3 'roles.rollout=[2]' mesh.fsdp=2 rl.max_staleness=1
like stale-none fsdp-ahead

# The reference alone, also of preferences.
"$temper" dpo model.path=model data.train=pairs.jsonl train.max_steps=3 train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] output_dir=dpo > dpo.log 2>&1 || fail "dpo: $(tail -3 dpo.log)"
"$temper" dpo --nproc 2 model.path=model data.train=pairs.jsonl train.max_steps=3 train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] output_dir=dpo-roles 'roles.reference=[1]' > dpo-roles.log 2>&1 || fail "dpo with roles: $(tail -3 dpo-roles.log)"
weights dpo dpo-roles
"$temper" dpo --nproc 3 model.path=model data.train=pairs.jsonl train.max_steps=3 train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] output_dir=dpo-tensor 'roles={reference: [1, 2], tensor: 2}' > dpo-tensor.log 2>&1 || fail "dpo with a role's tensor parallelism: $(tail -3 dpo-tensor.log)"
python3 "$here/same_losses.py" dpo/metrics.jsonl dpo-tensor/metrics.jsonl grad_norm || fail "dpo-tensor differs from dpo"
# Where the policy is sharded, its base becomes the reference of all ranks at once when the rank with that role is gone,
# also between two of their passes.
lora="model.path=model data.train=pairs.jsonl train.max_steps=60 train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] adapter.method=lora adapter.rank=3"
"$temper" dpo $lora output_dir=dpo-lora > dpo-lora.log 2>&1 || fail "dpo, lora: $(tail -3 dpo-lora.log)"
for after in 2 11 20; do
  "$temper" dpo --nproc 3 $lora mesh.fsdp=2 roles.reference=[2] output_dir=dpo-lost-$after > dpo-lost-$after.log 2>&1 & launcher=$!
  until_rows dpo-lost-$after $after
  kill -KILL "$(rank_of $launcher 2)" || fail "nothing to kill"
  wait $launcher || fail "the reference's rank was killed: $(tail -4 dpo-lost-$after.log)"
  python3 "$here/same_losses.py" dpo-lora/metrics.jsonl dpo-lost-$after/metrics.jsonl || fail "dpo-lost-$after differs from dpo-lora"
done

# Ranks that die are left out; the last one's work the trainer does. Nothing changes.
run slow "$slow" train.max_steps=6
for staleness in 0 1; do
  [ $staleness = 0 ] && like=slow || { run slow-stale "$slow" train.max_steps=6 rl.max_staleness=1; like=slow-stale; }
  start killed-$staleness --nproc 3 "$slow" train.max_steps=6 rl.max_staleness=$staleness 'roles={rollout: [1, 2], reference: [1]}'
  until_rows killed-$staleness 1
  kill -KILL "$(rank_of $launcher 1)" || fail "nothing to kill"
  until_rows killed-$staleness 3
  kill -KILL "$(rank_of $launcher 2)" || fail "nothing to kill"
  wait $launcher || fail "ranks that were killed, staleness $staleness: $(tail -4 killed-$staleness.log)"
  as $like killed-$staleness
  weights $like killed-$staleness
  for rank in 1 2; do
    [ "$(grep -c "rank $rank on .* is gone" killed-$staleness.log)" = 1 ] || fail "warnings of rank $rank: $(cat killed-$staleness.log)"
  done
done

# One that holds a model together with another takes that one along; others do their work, at last the trainer.
for victim in 3 1; do
  start pair-$victim --nproc 5 "$slow" train.max_steps=6 rl.max_staleness=1 'roles={rollout: [1, 2, 3, 4], reference: [1, 2], tensor: 2}'
  until_rows pair-$victim 1
  kill -KILL "$(rank_of $launcher $victim)" || fail "nothing to kill"
  wait $launcher || fail "rank $victim was killed: $(tail -4 pair-$victim.log)"
  for rank in $victim $((victim + 1)); do
    [ "$(grep -c "rank $rank on .* is gone" pair-$victim.log)" = 1 ] || fail "warnings of rank $rank: $(cat pair-$victim.log)"
  done
  diff <(tokens slow-stale) <(tokens pair-$victim) > /dev/null || fail "pair-$victim samples other tokens than slow-stale"
done

# Where each of those that train holds a part of the model, the run ends with what there is.
start parts --nproc 3 "$slow" train.max_steps=6 'roles.rollout=[2]' mesh.fsdp=2
until_rows parts 2
kill -KILL "$(rank_of $launcher 2)"
wait $launcher
[ $? = 1 ] && grep -q 'rank 2 on .* gone' parts.log || fail "parts: $(cat parts.log)"
run parts "$slow" train.max_steps=6
like slow parts './checkpoints/*'  # which steps were saved depends on when it ended

# A rank that trains ends all, and so does a wish to stop; the same command, or one with other roles, goes on.
start dead --nproc 3 "$slow" train.max_steps=6 'roles.rollout=[2]'
until_rows dead 2
ranks="$(rank_of $launcher 0) $(rank_of $launcher 2)"
begin=$SECONDS
kill -KILL "$(rank_of $launcher 1)"
wait $launcher
[ $? = 1 ] || fail "a rank that trains was killed: $(cat dead.log)"
[ $((SECONDS - begin)) -le 120 ] || fail "a rank that trains was killed: $((SECONDS - begin)) s"  # 30 s at most by itself
for p in $ranks; do kill -0 "$p" 2> /dev/null && fail "rank $p lives on"; done
run dead "$slow" train.max_steps=6 rl.max_staleness=0
like slow dead './checkpoints/*'  # which steps were saved depends on when it ended
start stopped --nproc 3 "$slow" train.max_steps=6 rl.max_staleness=1 'roles.rollout=[2]'
until_rows stopped 2
ranks=$(pgrep -P $launcher)
kill -TERM $launcher
wait $launcher
[ $? = 143 ] && grep -q 'the same command continues' stopped.log || fail "SIGTERM: $(cat stopped.log)"
for p in $ranks; do kill -0 "$p" 2> /dev/null && fail "SIGTERM: $p lives on"; done
cp -r stopped stopped-alone
run stopped --nproc 2 "$slow" train.max_steps=6 rl.max_staleness=1 'roles.rollout=[1]'
like slow-stale stopped './checkpoints/*'  # it has one of the step where it stopped
run stopped-alone "$slow" train.max_steps=6 rl.max_staleness=1
like slow-stale stopped-alone './checkpoints/*'

# Started as torchrun and srun do: each rank by itself, with the run's end and no launcher.
export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port)
processes=()
for rank in 0 1 2; do RANK=$rank start alone-$rank output_dir=alone 'roles={rollout: [1], reference: [2]}'; processes[rank]=$launcher; done
for rank in 0 1 2; do wait "${processes[rank]}" || fail "rank $rank by itself: $(cat alone-$rank.log)"; done
as one-none alone
for rank in 0 1; do RANK=$rank WORLD_SIZE=2 start lost-$rank output_dir=lost "$slow" 'roles.rollout=[1]'; processes[rank]=$launcher; done
until_rows lost 1
kill -KILL "${processes[0]}"
status=0; wait "${processes[1]}" || status=$?
[ $status = 1 ] && grep -q 'rank 0 is gone' lost-1.log || fail "rank 0 was killed: $status $(cat lost-1.log)"
for rank in 0 1; do RANK=$rank WORLD_SIZE=2 start differs-$rank output_dir=differs 'roles.rollout=[1]' rl.beta=0.$((rank + 1)); processes[rank]=$launcher; done
for i in 0 1; do wait "${processes[i]}" && fail "other configs"; grep -q 'has a different config' differs-$i.log || fail "other configs: $(cat differs-$i.log)"; done
# Also where they disagree about who trains.
RANK=0 WORLD_SIZE=2 start differs-0 output_dir=differs 'roles.rollout=[1]'; processes[0]=$launcher
RANK=1 WORLD_SIZE=2 start differs-1 output_dir=differs; processes[1]=$launcher
for i in 0 1; do wait "${processes[i]}" && fail "other roles"; grep -q 'has a different config' differs-$i.log || fail "other roles: $(cat differs-$i.log)"; done
unset WORLD_SIZE MASTER_ADDR MASTER_PORT

# What is wrong is said before anything starts.
refused() { # WORDS VERB ARGUMENTS
  local words=$1 verb=$2 status=0
  shift 2
  "$temper" "$verb" output_dir=refused "$@" > err 2>&1 || status=$?
  [ $status = 2 ] && grep -q -- "$words" err && [ "$(wc -l < err)" = 1 ] || fail "status $status, expected 2 and \`$words\`: $(cat err)"
}
refused "roles.rollout: found rank 2, and the run's ranks are 0 to 1" grpo run.yaml --nproc 2 'roles.rollout=[2]'
refused 'the run has one rank' grpo run.yaml 'roles.rollout=[1]'
# A reward model on a rank of its own: the same rewards, and the run goes on where it is killed.
"$temper" reward model.path=model data.train=pairs.jsonl train.max_steps=1 output_dir=rm > rm.log 2>&1 || fail "reward: $(tail -2 rm.log)"
by_model='rewards=[{name: rm, model: rm/final}, {name: length, weight: 0.1}]'
by_eval=(data.eval=prompts.jsonl 'train.eval_rewards=[{name: rm, model: rm/final}]')
run one-rm "$by_model" "${by_eval[@]}"
run served-rm "$by_model" "${by_eval[@]}" --nproc 2 'roles.reward=[1]'
as one-rm served-rm
value one-rm/metrics.jsonl eval/reward_mean > evaluated
[ -s evaluated ] && value served-rm/metrics.jsonl eval/reward_mean | diff evaluated - || fail "served-rm evaluates otherwise than one-rm"
# The plan of a rank that trains has the reward model only where that rank has it.
parts() { "$temper" check grpo run.yaml "$by_model" "${by_eval[@]}" --json output_dir=planned "$@" | python3 -c 'import json, sys; report = json.load(sys.stdin); print(*report["plan"]["parts"], *(c["message"] for c in report["checks"]))'; }
parts | grep -q 'reward_rm' || fail "plan without roles: $(parts)"
parts --nproc 2 'roles.reward=[1]' > parts.txt
grep -q 'a reward model on ranks of its own' parts.txt && ! grep -q 'reward_rm' parts.txt || fail "plan with roles.reward: $(cat parts.txt)"
refused 'rank 1 has another role too' grpo run.yaml --nproc 2 "$by_model" 'roles={rollout: [1], reward: [1]}'
refused 'no entry of rewards has a model' grpo run.yaml --nproc 2 'roles.reward=[1]'
refused 'this verb has no rewards' sft --nproc 2 model.path=model data.train=prompts.jsonl 'roles.reward=[1]'
refused 'roles.rollout: rank 1 is named twice' grpo run.yaml --nproc 2 'roles.rollout=[1, 1]'
refused 'none is left to train' grpo run.yaml --nproc 2 'roles={rollout: [1], reference: [0]}'
refused 'found rank 0' grpo run.yaml --nproc 2 'roles.rollout=[0]'
refused 'did you mean' grpo run.yaml --nproc 2 'roles={rollouts: [1]}'
refused 'this verb samples nothing' sft --nproc 2 model.path=model data.train=prompts.jsonl 'roles.rollout=[1]'
refused 'this verb has no reference model' orpo --nproc 2 model.path=model data.train=pairs.jsonl 'roles.reference=[1]'
refused 'rl.beta is 0' grpo run.yaml --nproc 2 rl.beta=0 'roles.reference=[1]'
refused 'fsdp 2 x tensor 1 does not divide the 3 ranks that train, of 4' grpo run.yaml --nproc 4 'roles.rollout=[3]' mesh.fsdp=2
refused 'rollout.server' grpo run.yaml --nproc 2 'roles.rollout=[1]' 'rollout.server.urls=[http://127.0.0.1:9]'
refused 'roles.rollout: found 3 ranks, expected a multiple of roles.tensor (2)' grpo run.yaml --nproc 4 'roles={rollout: [1, 2, 3], tensor: 2}'
refused 'divide their ranks differently' grpo run.yaml --nproc 4 'roles={rollout: [1, 2], reference: [2, 3], tensor: 2}'
refused 'roles.tensor: 3 ranks do not divide the 62 tokens' grpo run.yaml --nproc 4 'roles={rollout: [1, 2, 3], tensor: 3}'
refused 'roles.tensor: quantized weights' grpo run.yaml --nproc 3 adapter.method=qlora 'roles={rollout: [1, 2], tensor: 2}'
refused 'over 1 rank (mesh.tensor), sampling over 2 (roles.tensor)' grpo run.yaml --nproc 3 'roles={rollout: [1, 2], tensor: 2}' rl.on_mismatch=stop
refused 'rl.on_mismatch' grpo run.yaml --nproc 3 'roles.rollout=[2]' mesh.tensor=2 rl.on_mismatch=stop
refused 'rl.replay' grpo run.yaml --nproc 2 'roles.rollout=[1]' rl.replay=one-none/rollouts/step-1.jsonl
exit $bad
