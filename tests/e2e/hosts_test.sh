#!/usr/bin/env bash
# Two network namespaces joined by a cable, as two hosts: one rank's numbers, and a host that vanishes. $1: the program.
# Passed over, with the reason, where namespaces are not allowed.
set -uo pipefail
if [ -z "${TEMPER_IN_NAMESPACE:-}" ]; then
  command -v ip > /dev/null && command -v nsenter > /dev/null || { echo "passed over: there is no ip or nsenter"; exit 0; }
  unshare -n true 2> /dev/null || { echo "passed over: network namespaces are not allowed here"; exit 0; }
  TEMPER_IN_NAMESPACE=1 exec unshare -n bash "$0" "$@"
fi
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMP_NUM_THREADS=1 TEMPER_TIMEOUT_SECONDS=120
small_model
for i in $(seq 12); do echo "{\"input_ids\": [$i, 5, 9, $((i + 7)), 2]}"; done > rows.jsonl

unshare -n sleep 1000 & other=$!
trap 'kill $other 2> /dev/null; rm -rf "$dir"' EXIT
is_apart() { [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
comes_true is_apart || fail "no namespace for the other host"
if ! ip link add left type veth peer name right 2> err || ! ip link set right netns $other 2>> err; then
  echo "passed over: no veth pair here: $(cat err)"
  exit 0
fi
ip link set lo up; ip addr add 10.77.0.1/24 dev left; ip link set left up
there() { nsenter -t $other -n "$@"; }
there ip link set lo up; there ip addr add 10.77.0.2/24 dev right; there ip link set right up

ranks() { # OUT ARGUMENTS: rank 1 on the other host; leaves their statuses in first and second. $verb: what they run
  local out=$1
  shift
  export WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=$((20000 + RANDOM % 12000))
  RANK=0 "$temper" "${verb:-sft}" "$@" output_dir="$out" > "$out.0" 2>&1 & one=$!
  RANK=1 there "$temper" "${verb:-sft}" "$@" output_dir="$out" > "$out.1" 2>&1 & two=$!
  unset WORLD_SIZE MASTER_ADDR MASTER_PORT
}
run="model.path=model data.train=rows.jsonl train.batch_size=4 metrics.sinks=[jsonl]"
"$temper" sft $run train.max_steps=3 output_dir=alone > alone.log 2>&1 || fail "one rank: $(cat alone.log)"
ranks two $run train.max_steps=3 mesh.fsdp=2
wait $one || fail "rank 0: $(cat two.0)"
wait $two || fail "rank 1: $(cat two.1)"
python3 "$here/same_losses.py" alone/metrics.jsonl two/metrics.jsonl grad_norm || fail "two hosts differ from one"

# A rank on the other host samples. When the cable is cut it is left out, and the run goes on; it ends by itself.
cat > even.sh <<'S'
while read -r line; do sleep 0.2; echo "{\"reward\": 0.${#line}}"; done
S
grpo="model.path=model data.train=prompts.jsonl rl.group_size=2 rl.prompts_per_rollout=2 rl.beta=0 rollout.max_new_tokens=4 metrics.sinks=[jsonl]"
sed 's/"input_ids": \[\([^]]*\)\].*/"prompt_ids": [\1]}/' rows.jsonl > prompts.jsonl
"$temper" grpo output_dir=one-rl train.max_steps=6 $grpo 'rewards=[{name: even, command: [sh, even.sh]}]' > one-rl.log 2>&1 || fail "one rank: $(cat one-rl.log)"
verb=grpo ranks roles train.max_steps=6 $grpo 'rewards=[{name: even, command: [sh, even.sh]}]' 'roles.rollout=[1]'
until_rows roles 1
ip link set left down
start=$SECONDS
wait $one || fail "the rank that trains ended: $(cat roles.0)"
# It is some 30 s by itself; the collectives of a mesh would wait for hours.
[ $((SECONDS - start)) -le 150 ] || fail "noticed after $((SECONDS - start)) s"
grep -q 'rank 1 on .* is gone' roles.0 || fail "the rank that trains said: $(cat roles.0)"
wait $two && fail "the rank that sampled: $(cat roles.1)"
ip link set left up
cmp one-rl/final/model.safetensors roles/final/model.safetensors || fail "a host that vanished changed the run"

# The cable is cut: both say so, and end. What they say of each other depends on which of their connections fails first.
ranks cut $run train.max_steps=100000 mesh.fsdp=2
until_rows cut 1
ip link set left down
start=$SECONDS
for pid in $one $two; do
  status=0
  wait $pid || status=$?
  [ $status = 1 ] || fail "a rank ended with $status after the cable was cut: $(cat cut.0 cut.1)"
done
[ $((SECONDS - start)) -le 150 ] || fail "noticed after $((SECONDS - start)) s"
for rank in 0 1; do grep -Eq "rank $rank: rank $((1 - rank)) on .* (is unreachable|has exited|sent no heartbeat)" cut.$rank || fail "rank $rank said: $(cat cut.$rank)"; done
exit $bad
