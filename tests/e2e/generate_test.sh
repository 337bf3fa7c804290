#!/usr/bin/env bash
# Sampling and judging from the command line: what changes a completion, what must not, and being stopped. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
"$temper" demo --output d --sft-steps 30 --rl-steps 1 > log || { cat log; exit 1; }
model=d/warm-up/final
head -40 d/test.jsonl > rows.jsonl

# sample NAME FLAG...: completions of rows.jsonl into NAME.
sample() { "$temper" generate --model $model --input rows.jsonl --output "$1" --num-samples 2 --max-new-tokens 12 --ignore-eos "${@:2}" || fail "generate ${*:2}: $?"; }
texts() { grep -o '"text":"[^"]*"' "$1"; }
sample plain
[ "$(grep -c . plain)" = 80 ] || fail "not 80 completions"
for flags in '--max-batch 3' '--max-batch 1' '--cache-bytes 100000'; do
  sample same $flags
  cmp plain same || fail "$flags changed a completion"
done
OMP_NUM_THREADS=1 sample same
cmp plain same || fail "one thread changed a completion"
for flags in '--seed 4' '--temperature 0.5' '--repetition-penalty 1.5' '--top-k 3' '--top-p 0.5' '--min-p 0.2'; do
  sample other $flags
  cmp -s plain other && fail "$flags changed nothing"
done
sample greedy --temperature 0
sample greedy2 --temperature 0 --seed 9
cmp greedy greedy2 || fail "greedy depends on the seed"
[ "$(texts greedy | awk 'NR % 2' )" = "$(texts greedy | awk 'NR % 2 == 0')" ] || fail "two greedy samples of a row differ"

# A stop text ends the completion, is cut from the text and not from the tokens.
sample stopped --stop 1 --stop 23
texts stopped | grep -q '1\|23' && fail "a stop text is left"
grep -q '"finish_reason":"stop"' stopped || fail "nothing stopped"
paste -d'|' <(texts stopped) <(texts plain) | awk -F'|' '{ cut = substr($1, 1, length($1) - 1); if (index($2, cut) != 1) exit 1 }' || fail "--stop changed what comes before"

# Ctrl-C: exit status 1, what is whole is kept, nothing stands under the name.
for i in $(seq 3000); do echo '{"tokens": [1, 2, 3]}'; done > many.jsonl
"$temper" generate --model $model --input many.jsonl --output all.jsonl --max-new-tokens 2000 --ignore-eos --max-batch 64 2> stop.log &
process=$!
until [ -e all.jsonl.tmp-$process ]; do kill -0 $process || break; sleep 0.05; done
sleep 0.5
kill -INT $process
wait $process
[ $? = 1 ] || fail "an interrupted run did not fail"
grep -q stopped stop.log || fail "an interrupted run said: $(cat stop.log)"
[ ! -e all.jsonl ] && [ -z "$(ls -- *.tmp* 2> /dev/null)" ] || fail "an interrupted run left $(ls)"

# Judged by a program and by a built-in reward: the same verdicts.
cat > exact.sh <<'S'
while read -r line; do
  a=${line#*\"answer\":\"}; c=${line#*\"completion\":\"}
  [ "${a%%\"*}" = "${c%%\"*}" ] && echo 1 || echo 0
done
S
judge() { "$temper" eval --model $model --input rows.jsonl --num-samples 4 --max-new-tokens 6 --json "$@" || fail "eval $*: $?"; }
judge --reward exact > builtin.json
judge --reward-command sh exact.sh > program.json
cmp builtin.json program.json || fail "the program judged otherwise: $(cat builtin.json program.json)"
grep -q '"pass@4"' builtin.json || fail "no pass@4: $(cat builtin.json)"

# wrong EXPECTED FLAG...: exit status 2 and one line with EXPECTED.
wrong() {
  local status=0 message
  message=$("$temper" generate --model $model --input rows.jsonl --output x "${@:2}" 2>&1) || status=$?
  [ $status = 2 ] && [ "$(wc -l <<< "$message")" = 1 ] && [[ $message == *"$1"* ]] || fail "${*:2}: status $status, $message"
  [ ! -e x ] || fail "${*:2} left a file"
}
wrong 'rollout.cache_bytes' --cache-bytes 1000
wrong '--top-p' --top-p 0
wrong '--max-new-tokens' --max-new-tokens 99999999999
wrong 'beam search' --beams 4
wrong 'found nan' --temperature nan
wrong 'found -1' --seed -1
wrong 'found 0' --num-samples 0
echo '{"tokens": [1, 99]}' > rows.jsonl
wrong 'rows.jsonl:1' --seed 1
exit $bad
