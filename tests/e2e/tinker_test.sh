#!/usr/bin/env bash
# `temper serve --tinker`: training and sampling over the Tinker API. $1: the program. TEMPER_TINKER_PYTHON, where it is
# set, is a Python with the SDK tinker 0.38, which then drives the server as well.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
small_model

start() {
  : > serve.log
  "$temper" serve --model model --port 0 --tinker --state-dir state "$@" > serve.log 2> serve.err &
  process=$!
  address_of serve.log $process && return
  fail "serve $*: no address; $(cat serve.log serve.err)"
  exit 1
}
client() { python3 "$here/tinker_client.py" "$address" state "$1" || fail "$1; $(cat serve.err)"; }

start --model-name Qwen/Qwen3-8B
for part in basics order together errors saves; do client $part; done
"$temper" serve --model model --port 0 --tinker --state-dir state > other.log 2>&1 && fail "two servers on one state directory"
grep -q "another server uses it" other.log || fail "the second server said $(cat other.log)"
# What was saved outlives a server that is killed, and is read by the other verbs.
kill -KILL $process
wait $process 2> /dev/null
start
client loads
run=$(ls state/runs | while read -r id; do [ -d "state/runs/$id/weights/first" ] && echo "$id"; done | head -1)
echo '{"tokens": [5, 6, 7]}' > prompt.jsonl
"$temper" generate --model model --adapter "state/runs/$run/weights/first" --input prompt.jsonl --output out.jsonl --max-new-tokens 3 ||
  fail "generate does not read what was saved"
"$temper" export --model model --adapter "state/runs/$run/weights/first" --output merged > export.log 2>&1 || fail "export: $(cat export.log)"
grep -aq 'base_model.model.lm_head.lora_B.weight' "state/runs/$run/weights/first/adapter_model.safetensors" || fail "train_unembed: lm_head is not in what was saved"
# The merged model and PEFT compute what the adapter does.
echo '{"tokens": [5, 6, 7, 9, 12, 3]}' > rows.jsonl
"$temper" score --model model --adapter "state/runs/$run/weights/first" --input rows.jsonl --output adapted.scores || fail "score of what was saved"
"$temper" score --model merged --input rows.jsonl --output merged.scores || fail "score of the merged model"
numbers() { grep -o '"logprobs":\[[^]]*' "$1" | cut -d'[' -f2 | tr , '\n'; }
paste <(numbers adapted.scores) <(numbers merged.scores) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++ } END { exit n == 5 ? 0 : 1 }' ||
  fail "merged: $(cat adapted.scores merged.scores)"
if [ -n "${TEMPER_PEFT_PYTHON:-}" ]; then
  "$TEMPER_PEFT_PYTHON" -W ignore "$here/peft_scores.py" model "state/runs/$run/weights/first" rows.jsonl adapted.scores 2> peft.log ||
    fail "PEFT reads what was saved otherwise: $(tail -3 peft.log)"
fi
if [ -n "${TEMPER_TINKER_PYTHON:-}" ]; then
  TINKER_BASE_URL=$address TINKER_API_KEY=tml-test TINKER_TELEMETRY=0 "$TEMPER_TINKER_PYTHON" "$here/tinker_sdk.py" model > sdk.log 2>&1 ||
    fail "the SDK: $(tail -5 sdk.log)"
else
  echo "skipped: tinker_sdk.py (TEMPER_TINKER_PYTHON names no Python with tinker 0.38)"
fi
# A signal ends it at once, whoever waits.
before=$SECONDS
kill -TERM $process
wait $process || fail "SIGTERM: status $?"
[ $((SECONDS - before)) -le 5 ] || fail "SIGTERM took $((SECONDS - before)) s"
exit $bad
