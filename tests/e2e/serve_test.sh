#!/usr/bin/env bash
# The server as clients see it. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
"$temper" demo --output d --sft-steps 30 --rl-steps 1 > log || { cat log; exit 1; }
cp -r d/warm-up/final model
echo '{"eos_token": "<end>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}{{ extra }}"}' > model/tokenizer_config.json

# start FLAG...: a server in the background; its address in $address.
start() {
  : > serve.log  # or the address of the server before is read
  "$temper" serve --model model --port 0 "$@" > serve.log 2> serve.err &
  process=$!
  address_of serve.log $process && return
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
stop
# A client waits while it is told to end: it gets its completions, or is told after --drain-seconds.
start --drain-seconds 60
python3 "$here/serve_client.py" "$temper" "$address" drained > drained.log 2>&1 &
client=$!
comes_true grep -q begun drained.log
kill -TERM $process
wait $client || fail "a client whose request was taken: $(cat drained.log)"
wait $process || fail "a server that drained: status $?"
start  # as it is by default, with more to do than the seconds are enough for
python3 "$here/serve_client.py" "$temper" "$address" busy > busy.log 2>&1 &
client=$!
comes_true grep -q begun busy.log
stop
wait $client || fail "a client of a server that ends: $(cat busy.log)"
start --drain-seconds 0.2
python3 "$here/serve_client.py" "$temper" "$address" abandoned > abandoned.log 2>&1 &
client=$!
comes_true grep -q begun abandoned.log
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

# Names, variables of the template, the log, parameters that are not known, and what generation_config.json suggests.
start --served-model-name tiny --served-model-name small --access-log
python3 "$here/serve_client.py" "$temper" "$address" named || bad=1
stop
grep -q '"POST /v1/completions" 200 ' serve.err || fail "the access log: $(cat serve.err)"
[ "$(grep -c 'warning: .*`top_a`' serve.err)" = 1 ] || fail "a parameter that is not known: $(cat serve.err)"
[ -e model/generation_config.json ] && cp model/generation_config.json kept_config.json
echo '{"temperature": 0.7, "top_k": 1, "repetition_penalty": 1.0, "top_p": null}' > model/generation_config.json
start
python3 "$here/serve_client.py" "$temper" "$address" suggested || bad=1
stop
grep -q 'suggests: temperature 0.7, top_k 1' serve.err || fail "serve does not say how it samples: $(cat serve.err)"
start --generation-config none
python3 "$here/serve_client.py" "$temper" "$address" not_suggested || bad=1
stop
for seed in 1 2 3 4; do
  echo "12+34=" | "$temper" chat --model model --seed $seed --max-new-tokens 8 2> chat.err
done | sort -u > chats
[ "$(wc -l < chats)" = 1 ] && grep -q 'top_k 1' chat.err || fail "chat does not follow generation_config.json: $(cat chats chat.err)"
for seed in 1 2 3 4; do
  echo "12+34=" | "$temper" chat --model model --seed $seed --max-new-tokens 8 --top-k 0 --temperature 3 --ignore-eos 2> chat.err
done | sort -u > chats
[ "$(wc -l < chats)" -gt 1 ] || fail "chat's flags do not win: $(cat chats chat.err)"
"$temper" generate --model model --prompt 1+1= --seed 1 > out 2> err && grep -q 'sampling with temperature 1.*suggests temperature 0.7' err || fail "generate does not say what it uses: $(cat err)"
"$temper" generate --model model --prompt 1+1= --max-new-tokens 8 --temperature 0.7 --top-k 1 > out 2> err && [ ! -s err ] || fail "generate with what is suggested: $(cat err)"
echo '{"temperature": "hot"}' > model/generation_config.json
message=$("$temper" serve --model model --port 0 2>&1); status=$?
[ $status = 2 ] && [[ $message == *generation_config.json:*temperature* ]] || fail "a generation_config.json that is wrong: $status $message"
rm model/generation_config.json
[ -e kept_config.json ] && mv kept_config.json model/generation_config.json

# A prompt whose logits are no numbers fails alone: a token's embedding is NaN.
python3 - model <<'P' || fail "a model with a bad token"
import json, os, shutil, struct, sys
shutil.copytree(sys.argv[1], "bad_token")
data = bytearray(open("bad_token/model.safetensors", "rb").read())
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
name = next(n for n in header if "embed_tokens" in n)
begin, end = header[name]["data_offsets"]
width = header[name]["shape"][1]
head = bytes(data[8 + size + begin:8 + size + end])
row = 8 + size + begin + 4 * width * 11  # token 11 is +
data[row:row + 4] = struct.pack("<f", float("nan"))
header["lm_head.weight"] = {"dtype": "F32", "shape": header[name]["shape"], "data_offsets": [len(data) - 8 - size, len(data) - 8 - size + len(head)]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("bad_token/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:] + head)
config = json.load(open("bad_token/config.json"))
config["tie_word_embeddings"] = False
json.dump(config, open("bad_token/config.json", "w"))
P
mv model good && cp -r bad_token model
start
python3 "$here/serve_client.py" "$temper" "$address" bad_token || bad=1
stop
echo '{"prompt": "12"}' > rows.jsonl; echo '{"prompt": "1+2"}' >> rows.jsonl
status=0; "$temper" generate --model model --input rows.jsonl --output out.jsonl 2> err || status=$?
[ $status = 1 ] && grep -q 'row 1.*not finite' err || fail "a row whose logits are no numbers: $status $(cat err)"
rm -r model && mv good model

# The openai package, on a model whose tokens can write JSON.
mv model sums
json_model
python=python3
[ -x "$TEMPER_SOURCE_DIR/.deps/bench-venv/bin/python" ] && python=$TEMPER_SOURCE_DIR/.deps/bench-venv/bin/python
KEY=secret start --api-key-env KEY --max-request-bytes 100000
status=0
"$python" "$here/openai_client.py" "$address" || status=$?
if [ $status = 77 ]; then echo "skipped: the openai package's client is not tested"; else [ $status = 0 ] || bad=1; fi
head -c 200000 /dev/zero | tr '\0' ' ' > large
python3 - "$address" <<'P' || fail "a request that is too large"
import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/v1/completions", open("large", "rb").read(), {"Authorization": "Bearer secret"}))
    sys.exit(1)
except urllib.error.HTTPError as e:
    sys.exit(e.code != 413)
P
stop
rm -r model && mv sums model

message=$("$temper" serve --model model --api-key-env NO_SUCH_KEY 2>&1); status=$?
[ $status = 2 ] && [[ $message == *NO_SUCH_KEY* ]] || fail "no key: $status $message"
message=$(KEY= "$temper" serve --model model --api-key-env KEY 2>&1); status=$?
[ $status = 2 ] && [[ $message == *'--api-key-env: the environment variable KEY is set, but empty; it must hold the API key' ]] || fail "an empty key: $status $message"
message=$("$temper" serve --model model --adapter model=a/final --port 0 2>&1); status=$?
[ $status = 2 ] && [[ $message == *'the name model is'* ]] || fail "an adapter with the model's name: $status $message"
start
message=$("$temper" serve --model model --port "${address##*:}" 2>&1); status=$?
[ $status = 1 ] && [[ $message == *"port ${address##*:}"* ]] || fail "a port that is taken: $status $message"
message=$("$temper" serve --model model --host no.such.host.invalid --port 0 2>&1); status=$?
[ $status = 1 ] && [[ $message == *"the host has no address here"* ]] && [[ $message != *"in use"* ]] || fail "a host that is none: $status $message"
stop
exit $bad
