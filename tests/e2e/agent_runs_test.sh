#!/usr/bin/env bash
# Agents that branch and fail, with all that a run may have beside them: a critic, ranks, adapters, evaluation, weights
# that are older than those that train, replay, SIGKILL. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=. OMP_NUM_THREADS=1

python3 "$TEMPER_SOURCE_DIR/examples/calculator_model.py" calculator || fail "the model of the example"
"$temper" init --config calculator/config.json --tokenizer calculator --output calculator/model > /dev/null || fail "init"
"$temper" sft model.path=calculator/model data.train=calculator/sft.jsonl output_dir=warm train.max_steps=30 train.batch_size=16 \
  optimizer.learning_rate=3e-3 optimizer.schedule=constant metrics.sinks=[jsonl] > /dev/null || fail "warm-up"
head -3 calculator/test.jsonl > few.jsonl
cp "$here/agent_client.py" client.py
# An episode has two leaves, and one in three is killed in between; both depend on what was sampled alone.
cat > agent.py <<'P'
from client import *
import zlib
first = row["prompt"]
a, b = (said(ask(first))[0] for _ in range(2))
if zlib.crc32(json.dumps([first, a["content"]]).encode()) % 3 == 0: os.kill(os.getpid(), 9)
c = said(ask(first + [a, user("7")]))[0]
print(json.dumps({"reward": len(c["content"]) - len(b["content"])}))
P
small="model.path=warm/final data.train=calculator/rows.jsonl train.max_steps=4 train.save_every=1 rl.prompts_per_rollout=2
  rollout.max_new_tokens=48 train.micro_batch_tokens=512 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl]"
group="$small rl.group_size=4 rl.beta=0"
agent="environment={openai: {command: [python3, agent.py]}, max_turns: 3, start_timeout_seconds: 60}"
run() { local out=$1; shift; "$temper" "$@" "$agent" output_dir=$out > $out.log 2>&1 || fail "$out: $(tail -3 $out.log)"; }
weights() { cat $1/final/*.safetensors; }
same() { cmp <(weights $1) <(weights $2) || fail "$1 and $2 differ"; cmp <(cat $1/rollouts/*) <(cat $2/rollouts/*) || fail "rollouts of $1 and $2 differ"; }
# killed OUT WHOLE ARGUMENTS...: the run with SIGKILL at two moments has the bits of the one that nobody killed.
killed() {
  local out=$1 whole=$2 rows; shift 2
  for rows in 1 3; do
    setsid "$temper" "$@" "$agent" output_dir=$out > $out.log 2>&1 & local victim=$!
    until_rows $out $rows $victim
    kill -KILL -- -$victim 2> /dev/null
    wait $victim 2> /dev/null
  done
  run $out "$@"
  same $whole $out
}

# Ranks have the rewards of one process; the losses agree as rounding lets them.
run one grpo $group
[ "$(value one/metrics.jsonl environment_crashes | tail -1)" -gt 0 ] || fail "no agent was killed"
run two grpo --nproc 2 $group mesh.data=2
run parts grpo --nproc 2 $group mesh.fsdp=2 data.eval=few.jsonl train.eval_every=2
for out in two parts; do
  zero_diffs $out/metrics.jsonl
  cmp <(value one/metrics.jsonl reward_mean) <(value $out/metrics.jsonl reward_mean) || fail "$out: rewards differ"
done
# A row counts once in the evaluation, however its agent branched.
[ "$(value parts/metrics.jsonl eval/rows | sort -u)" = 3 ] || fail "eval/rows: $(value parts/metrics.jsonl eval/rows)"
run evaluated grpo $group data.eval=few.jsonl train.eval_every=2
cmp <(value parts/metrics.jsonl eval/reward_mean) <(value evaluated/metrics.jsonl eval/reward_mean) || fail "ranks evaluate otherwise"
killed one-killed one grpo $group

# A critic, several updates of a batch, truncated sampling; an adapter, with the critic on the same base.
many="rl.minibatches=2 rl.iterations=2 rollout.top_k=6"
run critic ppo $small $many train.max_steps=6
[ "$(value critic/metrics.jsonl value_loss | wc -l)" = 6 ] || fail "no critic"
killed critic-killed critic ppo $small $many train.max_steps=6
run lora ppo $small $many adapter.method=lora ppo.share_base=true
killed lora-killed lora ppo $small $many adapter.method=lora ppo.share_base=true
zero_diffs critic/metrics.jsonl
zero_diffs lora/metrics.jsonl

# Sampled ahead: which version sampled an episode is a matter of the plan, and importance weights are those of that one.
ahead="rl.max_staleness=2 train.max_steps=6"
run ahead grpo $group $ahead data.eval=few.jsonl train.eval_every=3
[ "$(value ahead/metrics.jsonl staleness_max | tr '\n' ' ')" = "0 1 2 2 2 2 " ] || fail "staleness_max $(value ahead/metrics.jsonl staleness_max)"
cmp <(value ahead/metrics.jsonl staleness_max) <(value ahead/metrics.jsonl staleness_mean) || fail "an episode of several versions"
for step in 1 2 3 4 5 6; do
  [ "$(grep -o '"policy_version":[^,]*' ahead/rollouts/step-$step.jsonl | sort -u)" = "\"policy_version\":$((step < 4 ? 0 : step - 3))" ] ||
    fail "versions of step $step: $(grep -o '"policy_version":[^,]*' ahead/rollouts/step-$step.jsonl | sort -u)"
done
[ "$(value ahead/metrics.jsonl mismatch_kl | tail -1)" != 0 ] || fail "no importance weights"
killed ahead-killed ahead grpo $group $ahead data.eval=few.jsonl train.eval_every=3
run lora-ahead grpo $group $ahead adapter.method=lora
killed lora-ahead-killed lora-ahead grpo $group $ahead adapter.method=lora
run ahead-two grpo --nproc 2 $group $ahead mesh.data=2
[ "$(value ahead-two/metrics.jsonl staleness_max | tr '\n' ' ')" = "0 1 2 2 2 2 " ] || fail "ranks: staleness_max"

# The run's own rollouts, replayed, are the batches that it trained on: an episode's leaves are one completion.
cat one/rollouts/step-*.jsonl > all.jsonl
"$temper" grpo ${group/max_steps=4/max_steps=1} rl.replay=one/rollouts/step-1.jsonl rl.on_mismatch=stop output_dir=replayed > replayed.log 2>&1 || fail "replay: $(tail -3 replayed.log)"
cmp <(value one/metrics.jsonl loss | head -1) <(value replayed/metrics.jsonl loss) || fail "replay has another loss"
"$temper" grpo ${group/train.max_steps=4/} rl.replay=all.jsonl output_dir=replayed-all > replayed.log 2>&1 || fail "replay of all: $(tail -3 replayed.log)"
cmp <(value one/metrics.jsonl reward_mean) <(value replayed-all/metrics.jsonl reward_mean) || fail "replay divides the batches otherwise"

exit $bad
