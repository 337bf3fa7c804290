#!/usr/bin/env bash
# Ranks whose process stands still (SIGSTOP): one that trains ends the run, one with a role is left out. A run that
# stands still as a whole goes on. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
stopped=()
trap 'kill -KILL "${stopped[@]}" $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT
tiny_model 62 32 48 2 2 2 16
awk 'BEGIN { for (i = 0; i < 24; ++i) printf "{\"prompt_ids\": [%d, %d, %d]}\n", 5 + i, 9 + i, 30 - i }' > prompts.jsonl
even_reward
sed 's/^while read -r line; do/while read -r line; do sleep 0.1/' even.sh > even_slow.sh
run="model.path=model data.train=prompts.jsonl optimizer.learning_rate=3e-3 rl.group_size=4 rl.prompts_per_rollout=4 rollout.max_new_tokens=7
  metrics.sinks=[jsonl] mesh.heartbeat_timeout_seconds=10"
reward='rewards=[{name: even, command: [sh, even_slow.sh]}]'
# start OUT ARGUMENTS: in the background, its process in $launcher.
start() { local out=$1; shift; "$temper" grpo $run "$reward" output_dir="$out" "$@" > "$out.log" 2>&1 & launcher=$!; }
rank_of() { for p in $(pgrep -P "$1"); do tr '\0' '\n' < /proc/"$p"/environ 2> /dev/null | grep -qx "RANK=$2" && echo "$p"; done; }
freeze() { stopped+=("$1"); kill -STOP "$1" || fail "nothing to stop"; }
tokens() { grep -ho '"completion_tokens": *[^]]*' "$1"/rollouts/step-*.jsonl; }

"$temper" grpo $run "$reward" output_dir=one train.max_steps=6 > one.log 2>&1 || fail "one: $(tail -3 one.log)"

# One that trains: the others end with a message that names it and its host.
start trains --nproc 2 train.max_steps=100000
until_rows trains 2
freeze "$(rank_of $launcher 1)"
first=$(rank_of $launcher 0)
comes_true has_ended "$first" || fail "rank 0 waits for a rank that stands still"
grep -q "rank 0: rank 1 on $(hostname) sent no heartbeat" trains.log || fail "rank 1 stood still: $(cat trains.log)"
wait $launcher
[ $? = 1 ] || fail "rank 1 stood still: $(cat trains.log)"

# One that samples, with the weights of the next update on their way to it: others do its work.
start samples --nproc 3 train.max_steps=6 rl.max_staleness=0 'roles.rollout=[1, 2]'
until_rows samples 1
freeze "$(rank_of $launcher 1)"
wait $launcher || fail "rank 1 stood still: $(cat samples.log)"
[ "$(grep -c 'rank 1 on .* sends no heartbeat' samples.log)" = 1 ] || fail "no warning: $(cat samples.log)"
diff <(tokens one) <(tokens samples) > /dev/null || fail "samples differ"

# Ctrl-Z and fg: all of them stand still for longer than the time for heartbeats.
start paused --nproc 3 train.max_steps=6 'roles.rollout=[2]' rl.max_staleness=0
until_rows paused 1
all="$launcher $(pgrep -P $launcher)"
kill -STOP $all || fail "the run ended before it was stopped"
stopped+=($all)
sleep 15
kill -CONT $all || fail "the run ended while it stood still"
wait $launcher || fail "a run that stood still: $(cat paused.log)"
grep -q heartbeat paused.log && fail "a run that stood still: $(cat paused.log)"
diff <(tokens one) <(tokens paused) > /dev/null || fail "samples differ"
exit $bad
