#!/usr/bin/env bash
# A language model behind an address that judges: it is asked before the run, and a run that it leaves ends with a
# checkpoint and goes on. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT
json_model
for i in $(seq 20); do echo "{\"prompt\": \"say $i\", \"completion\": \"$i\"}"; done > prompts.jsonl
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 4, save_every: 0, micro_batch_tokens: 256}
rl: {group_size: 2, prompts_per_rollout: 2, beta: 0}
rollout: {max_new_tokens: 4}
metrics: {sinks: [jsonl]}
Y
# judge.py PORT MODE: a judge whose number is the answer's length; `one` ends with its first real question, `missing` and
# `locked` refuse.
cat > judge.py <<'P'
import http.server, json, os, sys
class Judge(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def say(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.say({"data": [{"id": "judge"}]}, {"missing": 404, "locked": 401}.get(sys.argv[2], 200))
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["max_tokens"] > 1 and sys.argv[2] == "one": os._exit(0)
        text = "%d of 10" % (len(request["messages"][0]["content"]) % 7)
        self.say({"choices": [{"message": {"content": text}}]})
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Judge).serve_forever()
P
port=$(free_port)
rated="rewards=[{name: length}, {name: rated, judge: {url: \"http://127.0.0.1:$port\", prompt: \"Rate {completion}\", pattern: \"^[0-9]+\"}, timeout_seconds: 20}]"
answers() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)' $port 2> /dev/null; }
judge() { python3 judge.py $port "$1" & server=$!; comes_true answers || fail "the judge does not listen"; }
gone() { kill $server 2> /dev/null; wait $server 2> /dev/null; }
refused() { local hint=$1 status=0; shift; "$temper" "$@" > out 2> err || status=$?; [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -q -- "$hint" err || fail "expected $hint, got $status: $(cat err)"; }

# What is wrong with a judge is said before the run, in one line, in evaluations of other verbs, too.
refused "rewards: rated: the judge at http://127.0.0.1:$port: no answer (.*; start it first" grpo run.yaml output_dir=none "$rated"
refused "rewards: rated: the judge at http://127.0.0.1:$port: no answer (.*; start it first" sft model.path=model data.train=prompts.jsonl \
  output_dir=none data.eval=prompts.jsonl train.eval_every=1 "train.eval_$rated"
judge missing
refused "status 404.*; judge.url is expected to have /v1/models" grpo run.yaml output_dir=none "$rated"
gone; judge locked
refused "status 401.*; judge.api_key_env names" grpo run.yaml output_dir=none "$rated"
gone
[ ! -e none/metrics.jsonl ] || fail "a run began without its judge"

# A judge that is gone in the middle ends the run before it trains on a rollout without it; it goes on with its bits.
judge all
"$temper" grpo run.yaml output_dir=whole "$rated" > log 2>&1 || fail "whole: $(cat log)"
[ "$(value whole/metrics.jsonl rewards/rated | sort -u | wc -l)" -gt 1 ] || fail "the judge judged nothing"
"$temper" grpo run.yaml output_dir=left "$rated" train.max_steps=2 optimizer.schedule=constant > log 2>&1 || fail "left: $(cat log)"
gone; judge one
status=0; "$temper" grpo run.yaml output_dir=left "$rated" optimizer.schedule=constant > log 2> err || status=$?
[ $status = 1 ] && grep -q "the reward rated: the judge's server answered for none of a rollout's 4 completions (the first failure: the judge at http" err || fail "a judge that is gone: $status $(cat err)"
[ "$(wc -l < left/metrics.jsonl)" = 2 ] || fail "a step was trained without its judge"
gone; judge all
"$temper" grpo run.yaml output_dir=left "$rated" optimizer.schedule=constant > log 2>&1 || fail "goes on: $(cat log)"
"$temper" grpo run.yaml output_dir=straight "$rated" optimizer.schedule=constant > log 2>&1 || fail "straight: $(cat log)"
cmp left/final/model.safetensors straight/final/model.safetensors || fail "a run that its judge left has other weights"
gone
exit $bad
