#!/usr/bin/env bash
# The server as clients see it. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
"$temper" demo --output d --sft-steps 30 --rl-steps 1 > log || { cat log; exit 1; }
cp -r d/warm-up/final model
echo '{"eos_token": "<end>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}' > model/tokenizer_config.json

# start FLAG...: a server in the background; its address in $address.
start() {
  "$temper" serve --model model --port 0 "$@" > serve.log 2> serve.err &
  process=$!
  for i in $(seq 200); do
    address=$(grep -om1 'http://[0-9.:]*' serve.log) && return
    kill -0 $process 2> /dev/null || break
    sleep 0.1
  done
  fail "serve $*: no address; $(cat serve.log serve.err)"
  exit 1
}
# stop: SIGTERM; it ends with 0 within 5 s.
stop() {
  local before=$SECONDS status=0
  kill -TERM $process
  wait $process || status=$?
  [ $status = 0 ] && [ $((SECONDS - before)) -le 5 ] || fail "SIGTERM: status $status after $((SECONDS - before)) s; $(cat serve.err)"
}

start
[ "$(wc -l < serve.log)" = 1 ] || fail "it printed $(cat serve.log)"
python3 "$here/serve_client.py" "$temper" "$address" all || bad=1
# A client waits while it is told to end.
python3 "$here/serve_client.py" "$temper" "$address" abandoned > abandoned.log 2>&1 &
client=$!
sleep 0.5
stop
wait $client || fail "a client that waited: $(cat abandoned.log)"

# The limit of requests, the key, adapters by name.
KEY=secret start --max-requests 1 --api-key-env KEY
python3 "$here/serve_client.py" "$temper" "$address" limits || bad=1
stop
for name in a b; do
  "$temper" sft model.path=model adapter.method=lora adapter.rank=2 data.train=d/sums.jsonl train.max_steps=$([ $name = a ] && echo 1 || echo 3) \
    train.batch_size=4 optimizer.learning_rate=0.1 optimizer.schedule=constant output_dir=$name > $name.log 2>&1 || fail "sft $name: $(tail -3 $name.log)"
done
start --adapter a=a/final --adapter b=b/final
python3 "$here/serve_client.py" "$temper" "$address" adapters || bad=1
stop

message=$("$temper" serve --model model --api-key-env NO_SUCH_KEY 2>&1); status=$?
[ $status = 2 ] && [[ $message == *NO_SUCH_KEY* ]] || fail "no key: $status $message"
message=$("$temper" serve --model model --adapter model=a/final --port 0 2>&1); status=$?
[ $status = 2 ] && [[ $message == *'the name model is'* ]] || fail "an adapter with the model's name: $status $message"
start
message=$("$temper" serve --model model --port "${address##*:}" 2>&1); status=$?
[ $status = 1 ] && [[ $message == *"port ${address##*:}"* ]] || fail "a port that is taken: $status $message"
stop
exit $bad
