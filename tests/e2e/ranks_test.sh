#!/usr/bin/env bash
# Ranks that do not find each other, and numbers of ranks that no machine has. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
small_model
echo '{"input_ids": [1, 2, 3]}' > rows.jsonl
run="sft output_dir=run model.path=model data.train=rows.jsonl train.max_steps=1"
# one_line FILE: an error is one message, without a stack trace or what libraries log.
one_line() { [ "$(wc -l < "$1")" = 1 ] || fail "expected one line: $(cat "$1")"; }

status=0
RANK=1 timeout 200 "$temper" $run 2> err || status=$?
[ $status = 2 ] && grep -q 'RANK is set and WORLD_SIZE is not' err || fail "a lone RANK: status $status: $(cat err)"
one_line err

export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port)
# Whether the first rank listens; whether another stays connected to it: the first look for it is over at once, and on a
# busy machine a connection may be there for seconds before the two have spoken.
listens() { grep -qi ":$(printf %04x $MASTER_PORT) 0*:0000 0A " /proc/net/tcp /proc/net/tcp6; }
connected() { grep -qi " 0[0-9A-F]*:$(printf %04x $MASTER_PORT) 01 " /proc/net/tcp /proc/net/tcp6; }
stays_connected() { for _ in $(seq 20); do connected || return 1; sleep 0.2; done; }
# Whether the process catches SIGTERM: before that it ends without a word. Before it is the program it is a copy of this
# shell, whose own handlers the kernel shows.
catches() { [ "/proc/$1/exe" -ef "$temper" ] && (((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status") >> 14) & 1)); }
for rank in 0 1; do
  status=0
  RANK=$rank TEMPER_TIMEOUT_SECONDS=6 timeout 200 "$temper" $run 2> err || status=$?
  [ $status = 1 ] && grep -q 'within 6 s' err || fail "rank $rank alone: status $status: $(cat err)"
  one_line err
  # SIGTERM ends the wait.
  RANK=$rank "$temper" $run 2> err & pid=$!
  comes_true catches $pid || fail "rank $rank does not catch SIGTERM"
  [ $rank = 1 ] || comes_true listens || fail "rank 0 does not listen"
  kill -TERM $pid
  comes_true has_ended $pid || { kill -KILL $pid; fail "rank $rank did not end by SIGTERM"; }
  status=0
  wait $pid || status=$?
  [ $status = 143 ] && grep -q 'asked to stop' err || fail "rank $rank stopped: status $status: $(cat err)"
  one_line err
done

# Two first ranks: the second says what is wrong. The rank that waits loses the first one, and says where to look.
RANK=0 WORLD_SIZE=3 "$temper" $run 2> first & first=$!
comes_true listens || fail "rank 0 does not listen"
status=0
RANK=0 WORLD_SIZE=3 timeout 200 "$temper" $run 2> err || status=$?
[ $status = 1 ] && grep -q "the port $MASTER_PORT is in use" err || fail "a second rank 0: status $status: $(cat err)"
one_line err
RANK=1 WORLD_SIZE=3 "$temper" $run 2> err & second=$!
comes_true stays_connected || fail "rank 1 does not connect"
kill -TERM $first
wait $first
one_line first
comes_true has_ended $second || fail "rank 1 waits for a first rank that has ended"
kill -KILL $second 2> /dev/null
status=0
wait $second || status=$?
[ $status = 1 ] && grep -q 'rank 1: no connection to the rendezvous at 127.0.0.1' err || fail "rank 0 ended: status $status: $(cat err)"
one_line err

# A rank is killed while the other waits for a reward, in no collective: it notices, and ends.
echo '{"prompt_ids": [1, 2, 3]}' > prompts.jsonl
processes=()
for rank in 0 1; do
  RANK=$rank "$temper" grpo output_dir=lost model.path=model data.train=prompts.jsonl train.max_steps=1 rollout.max_new_tokens=4 \
    'rl={prompts_per_rollout: 2, group_size: 2}' 'rewards=[{command: [sh, -c, "read -r l; touch asked-$RANK; sleep 300; echo 1"], timeout_seconds: 300}]' \
    > lost-$rank.log 2>&1 &
  processes[rank]=$!
done
for rank in 0 1; do comes_true test -e asked-$rank || fail "rank $rank asks for no reward: $(cat lost-$rank.log)"; done
kill -KILL "${processes[1]}"
status=0
comes_true has_ended "${processes[0]}" || fail "rank 0 did not end"
kill -KILL "${processes[0]}" 2> /dev/null
wait "${processes[0]}" || status=$?
[ $status = 1 ] && grep -q "rank 1 on $(hostname) has exited" lost-0.log || fail "rank 1 was killed: status $status: $(cat lost-0.log)"

# A rank of --nproc is killed before the ranks have met: the launcher knows, and does not let the other one wait.
unset WORLD_SIZE
TEMPER_TIMEOUT_SECONDS=86400 "$temper" sft --nproc 2 output_dir=unmet model.path=model data.train=rows.jsonl train.max_steps=1 > unmet.log 2>&1 & launcher=$!
ranks_of() { children=($(cat /proc/$launcher/task/$launcher/children)); [ ${#children[@]} = 2 ]; }
comes_true ranks_of && kill -KILL "${children[1]}"
comes_true has_ended $launcher || { fail "a rank waits for one that was killed: $(cat unmet.log)"; kill -KILL $launcher "${children[0]}"; }
status=0
wait $launcher || status=$?
[ $status = 1 ] && grep -q 'rank 1 was ended by signal 9' unmet.log || fail "a rank was killed before the ranks met: status $status: $(cat unmet.log)"
export WORLD_SIZE=2

# Two hosts whose directories of the same name hold different models: found at the start on any mesh.
mkdir -p there
cp rows.jsonl there
(cd there && "$temper" init --config ../config.json --seed 4 --output model > /dev/null)
# both RANKS DIFFERENT ARGUMENTS: the second half of the ranks is started in the other directory, where what the key
# DIFFERENT names is another.
both() {
  local ranks=$1 different=$2 rank processes=()
  shift 2
  for rank in $(seq 0 $((ranks - 1))); do
    (cd "$([ $rank -lt $((ranks / 2)) ] && echo . || echo there)" &&
      RANK=$rank WORLD_SIZE=$ranks OMP_NUM_THREADS=1 timeout 100 "$temper" $run output_dir="$dir/hosts-$ranks" "$@") > both-$rank.log 2>&1 & processes[rank]=$!
  done
  for rank in "${!processes[@]}"; do
    wait "${processes[rank]}"
    [ $? = 1 ] && grep -q "rank [1-3] on $(hostname) has a different $different than rank 0 on $(hostname): .* bytes, hash" both-$rank.log ||
      fail "rank $rank of $ranks: $(cat both-$rank.log)"
  done
  [ -e "hosts-$ranks/final" ] && fail "$ranks ranks left a model of which they held two"
}
both 2 'model.path (model)'
both 2 'model.path (model)' mesh.fsdp=2
both 4 'model.path (model)' mesh.fsdp=2 'adapter={method: lora, rank: 2}'
rm -r there/model
cp -r model there
echo '{"input_ids": [1, 2, 4]}' > there/rows.jsonl
both 2 'data.train\[0\].path (rows.jsonl)'
both 2 'data.train\[0\].path (rows.jsonl)' mesh.fsdp=2

# Two hosts with different defaults compute with different backends.
backends=(native aten) processes=()
for rank in 0 1; do
  RANK=$rank TEMPER_BACKEND=${backends[rank]} timeout 100 "$temper" $run output_dir=backends > backends-$rank.log 2>&1 & processes[rank]=$!
done
for rank in 0 1; do
  status=0
  wait "${processes[rank]}" || status=$?
  [ $status = 1 ] && grep -q "rank 1 on $(hostname) has a different backend (model.backend, TEMPER_BACKEND) than rank 0 on $(hostname): \`aten\`, not \`native\`" backends-$rank.log ||
    fail "rank $rank of two backends: status $status: $(cat backends-$rank.log)"
done
unset WORLD_SIZE MASTER_ADDR MASTER_PORT

for ranks in 1000 1000000; do
  status=0
  timeout 60 "$temper" sft --nproc $ranks output_dir=run model.path=model data.train=rows.jsonl 2> err || status=$?
  [ $status = 2 ] && grep -q "nproc: found $ranks, expected at most" err || fail "--nproc $ranks: status $status: $(cat err)"
  one_line err
done

# The collectives between ranks: each, of each size, takes some time and has some bandwidth.
timeout 250 "$temper" doctor --nproc 3 > doctor.log 2> err || fail "doctor --nproc 3: $(cat err)"
grep -q "^ranks .* 3 over Gloo on $(hostname) (ranks 0, 1, 2), " doctor.log || fail "doctor --nproc 3: $(cat doctor.log)"
for collective in all_reduce all_gather reduce_scatter broadcast send; do
  [ "$(awk -v name=$collective '$1 == name && $2 > 0 && $3 > 0 && $4 > 0' doctor.log | wc -l)" = 4 ] || fail "doctor: $collective: $(cat doctor.log)"
done
[ "$(grep -c '^cpu ' doctor.log)" = 1 ] || fail "doctor --nproc 3 names the machine: $(cat doctor.log)"
# refused WORDS ARGUMENTS
refused() {
  local words=$1 status=0
  shift
  "$temper" "$@" > /dev/null 2> err || status=$?
  [ $status = 2 ] && grep -q -- "$words" err || fail "$*: status $status: $(cat err)"
}
refused 'expected integer >= 1' doctor --nproc 0
refused nproc doctor --nproc two
refused nonsense doctor nonsense
refused 'nproc: found 1000, expected at most' doctor --nproc 1000
RANK=0 WORLD_SIZE=1 refused 'leave out --nproc' doctor --nproc 2
RANK=0 WORLD_SIZE=1 refused 'leave out --nproc' sft --nproc 2 output_dir=run model.path=model data.train=rows.jsonl
exit $bad
