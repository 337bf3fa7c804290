#!/usr/bin/env bash
# Servers that sample for a training run (rollout.server): temper serve itself, stand-ins for vLLM and SGLang, servers
# that are killed, that fail, that ask for a key. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT

model() { tiny_model 62 32 48 2 2 2 16; }  # two tensor-parallel ranks divide it
model
awk 'BEGIN { for (i = 0; i < 40; ++i) { printf "{\"prompt_ids\": ["; n = 1 + i % 9; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 50; printf "]}\n" } }' > prompts.jsonl
even_reward
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 6, save_every: 2}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {group_size: 4, prompts_per_rollout: 3, beta: 0}
rollout: {max_new_tokens: 7, temperature: 0.9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y
tokens() { grep -ho '"completion_tokens": *[^]]*' "$1"/rollouts/step-*.jsonl; }
versions() { for step in $(seq "$2"); do head -1 "$1/rollouts/step-$step.jsonl" | grep -o '"policy_version":[^,}]*' | grep -o '[0-9]*'; done | tr '\n' ' '; }

# start LOG COMMAND...: in the background; its process in $process, its address in $address.
start() {
  local log=$1
  shift
  : > "$log"
  "$@" >> "$log" 2>&1 &
  process=$!
  address_of "$log" $process && return
  fail "$*: no address; $(cat "$log")"
  exit 1
}
stand_in() { start "$1" python3 "$here/sampler_stand_in.py" "${@:2}"; }
# What a stand-in has loaded, as versions in order.
loads() { grep -o 'loaded .*step-[0-9]*' "$1" | grep -o '[0-9]*$' | tr '\n' ' '; }
serve() { start serve.log "$temper" serve --model model --port "${1:-0}" "${@:2}"; }
grpo() { "$temper" grpo run.yaml output_dir="$@"; }

serve
first=$process url=$address
for method in none lora; do
  grpo sync-$method adapter.method=$method adapter.rank=4 rollout.server.urls=[$url] > log 2>&1 || fail "$method: $(tail -3 log)"
  # Its weights are the trainer's after every update, so its numbers are, too.
  [ "$(value sync-$method/metrics.jsonl sampler_trainer_max_abs_diff | sort | uniq -c | tr -s ' ')" = " 6 0" ] || fail "$method: the server is not the trainer: $(value sync-$method/metrics.jsonl sampler_trainer_max_abs_diff)"
  [ "$(value sync-$method/metrics.jsonl mismatch_kl | sort -u)" = 0 ] || fail "$method: a KL between equals"
  [ "$(versions sync-$method 6)" = "0 1 2 3 4 5 " ] || fail "$method: versions $(versions sync-$method 6)"
  [ "$(value sync-$method/metrics.jsonl staleness_mean | sort -u)" = 0 ] || fail "$method: stale"
  [ "$(ls sync-$method/weights | tr '\n' ' ')" = "step-4 step-5 " ] || fail "$method: left $(ls -A sync-$method/weights)"
  grpo again-$method adapter.method=$method adapter.rank=4 rollout.server.urls=[$url/v1/] rollout.server.weights_dir=shared > log 2>&1 || fail "$method again: $(tail -3 log)"
  cmp sync-$method/final/*model.safetensors again-$method/final/*model.safetensors || fail "$method: not reproducible"
done

# temper check asks the servers: one that answers is enough for a run. Its other checks are not meant here.
checked() { "$temper" check grpo run.yaml output_dir=checked "rollout.server.urls=[$1]" "${@:3}" > log 2>&1; grep -q "^$2" log || fail "check of servers, expected $2: $(cat log)"; }
checked "$url" 'pass  rollout.server *1 server answers: model'
checked "$url,http://127.0.0.1:9" 'warn  rollout.server .*http://127.0.0.1:9: '
# One of another model or kind is not, for the run as well, before it has done anything.
mv model whole && tiny_model 70 32 48 2 2 2 16 && mv model other && mv whole model || fail "no other model"
start other.log "$temper" serve --model other --port 0
useless() {  # URL MESSAGE ARGUMENTS
  checked "$1" "fail  rollout.server .*$2" "${@:3}"
  status=0
  "$temper" grpo run.yaml output_dir=useless "rollout.server.urls=[$1]" "${@:3}" > log 2>&1 || status=$?
  [ $status = 2 ] && grep -q -- "$2" log || fail "a server of no use, expected $2: $status $(tail -3 log)"
}
useless "$address" 'vocabulary of 70 tokens, expected the policy.s 62'
useless "$url,$address" 'vocabulary of 70 tokens'
useless "$url" 'it keeps keys and values in .float32., and the policy in float16: start it with --cache-dtype float16' rollout.cache_dtype=float16
useless "$url" 'no route POST /pause' rollout.server.kind=vllm
useless "$url" 'no route POST /v1/load_lora_adapter' rollout.server.kind=vllm adapter.method=lora
useless "$url" 'no route POST /generate' rollout.server.kind=sglang
kill $process
stand_in kinds.log vllm $url
useless "$address" 'no route POST /update_weights_from_disk'
for method in none lora; do checked "$address" 'pass  rollout.server *1 server answers: stand-in' rollout.server.kind=vllm adapter.method=$method; done
kill $process
stand_in kinds.log sglang $url
useless "$address" 'no route POST /pause' rollout.server.kind=vllm
for method in none lora; do checked "$address" 'pass  rollout.server *1 server answers: stand-in' rollout.server.kind=sglang adapter.method=$method; done
kill $process

# Whether a server's log-probabilities are those before top-k and the like, as the policy's are, is found out where it
# counts, and said.
stand_in kinds.log vllm $url --processed
after='those after penalties, top-k, top-p and min-p'
checked "$address" 'pass  rollout.server' rollout.server.kind=vllm
checked "$address" "warn  rollout.server *$address: its log-probabilities are $after" rollout.server.kind=vllm rollout.top_p=0.9
checked "$url" 'pass  rollout.server' rollout.top_p=0.9
grpo processed rollout.server.kind=vllm rollout.server.urls=[$address] rollout.top_k=5 train.max_steps=1 > log 2>&1 || fail "log-probabilities after top-k: $(tail -3 log)"
grep -q "warning: rollout.server: $address: its log-probabilities are $after" log || fail "log-probabilities after top-k, and nothing is said: $(cat log)"
kill $process

# A completion that the server's context length cut is none of the run's: it would have gone on.
for kind in vllm sglang; do
  stand_in kinds.log $kind $url --context 9
  status=0
  grpo short rollout.server.kind=$kind rollout.server.urls=[$address] train.max_steps=1 > log 2>&1 || status=$?
  [ $status = 1 ] && grep -q 'by its length after .* its context length is too small' log || fail "a server of a short context: $status $(tail -3 log)"
  rm -rf short
  kill $process
done

# A server whose log-probabilities are nobody's: of a temper serve the check at the start finds out, of others the run,
# which ends before it is trained on them for long.
for lie in tiny zero shifted; do
  stand_in lies.log openai $url --lie $lie
  useless "$address" 'its log-probabilities disagree: token '
  kill $process
  [ $lie = shifted ] && continue  # this model finds all tokens about as likely, so nothing is far away
  stand_in lies.log vllm $url --lie $lie
  status=0
  grpo lies-$lie rollout.server.kind=vllm rollout.server.urls=[$address] > log 2>&1 || status=$?
  [ $status = 1 ] && grep -q 'rollout.server: the log-probabilities of the servers are not those of the policy' log || fail "$lie: $status $(tail -3 log)"
  [ $lie = tiny ] && steps=0 || steps=2
  [ "$(cat lies-$lie/metrics.jsonl 2> /dev/null | wc -l)" = $steps ] || fail "$lie: trained $(wc -l < lies-$lie/metrics.jsonl) steps, expected $steps"
  kill $process
done
stand_in lies.log openai $url
grpo honest rollout.server.urls=[$address] train.max_steps=2 > log 2>&1 || fail "an honest proxy: $(tail -3 log)"
kill $process

# With staleness each batch is sampled by the weights of one update before.
grpo stale rl.max_staleness=1 rollout.server.urls=[$url] > log 2>&1 || fail "stale: $(tail -3 log)"
[ "$(versions stale 6)" = "0 0 1 2 3 4 " ] || fail "stale versions: $(versions stale 6)"
[ "$(value stale/metrics.jsonl staleness_mean | tr '\n' ' ')" = "0 1 1 1 1 1 " ] || fail "staleness $(value stale/metrics.jsonl staleness_mean)"

# A server that keeps its own weights: what is measured and corrected grows.
grpo none rollout.server.urls=[$url] rollout.server.sync=none > log 2>&1 || fail "sync none: $(tail -3 log)"
[ "$(versions none 6)" = "0 0 0 0 0 0 " ] || fail "sync none: $(versions none 6)"
value none/metrics.jsonl mismatch_kl | tail -1 | awk '{ exit $1 > 0 ? 0 : 1 }' || fail "sync none: no mismatch"
status=0
grpo none-stop rollout.server.urls=[$url] rollout.server.sync=none rl.on_mismatch=stop > log 2>&1 || status=$?
[ $status = 2 ] && grep -q 'rl.on_mismatch: found stop with rollout.server.sync none' log || fail "sync none, stop: $status $(tail -3 log)"

# vLLM's and SGLang's protocols, sampled by the same server: the same weights reach it, and its numbers come back.
for kind in vllm sglang; do
  stand_in $kind.log $kind $url --fail-first 2
  for method in none lora; do
    # The server starts with the base model; an adapter's last weights would stay otherwise.
    grpo $kind-$method adapter.method=$method adapter.rank=4 rollout.server.kind=$kind rollout.server.urls=[$address] train.max_steps=4 > log 2>&1 || fail "$kind $method: $(tail -3 log)"
    [ "$(value $kind-$method/metrics.jsonl sampler_trainer_max_abs_diff | sort | uniq -c | tr -s ' ')" = " 4 0" ] || fail "$kind $method: $(value $kind-$method/metrics.jsonl sampler_trainer_max_abs_diff)"
  done
  # Of two ranks one has the server load each version, once; it is written once.
  for method in none lora; do
    for staleness in 0 1; do
      [ $method-$staleness = lora-1 ] && continue
      out=$kind-$method-$staleness
      [ $staleness = 0 ] && versions="0 1 2 3 " || versions="0 1 2 "
      : > $kind.log
      grpo $out --nproc 2 rl.max_staleness=$staleness adapter.method=$method adapter.rank=4 rollout.server.kind=$kind rollout.server.urls=[$address] train.max_steps=4 > log 2>&1 || fail "$out: $(tail -3 log)"
      [ "$(loads $kind.log)" = "$versions" ] || fail "$out: loaded $(loads $kind.log)"
      [ $staleness = 1 ] || [ "$(value $out/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "$out: $(value $out/metrics.jsonl sampler_trainer_max_abs_diff)"
      [ "$(ls -A $out/weights | wc -l)" = 2 ] || fail "$out: left $(ls -A $out/weights)"
    done
    diff <(tokens $kind-$method) <(tokens $kind-$method-0) > /dev/null || fail "$kind $method: two ranks sample other tokens"
  done
  # Sampling options reach the server under its own names.
  grpo $kind-bias rollout.server.kind=$kind rollout.server.urls=[$address] 'rollout.logit_bias={"11": 100}' rollout.ignore_eos=true train.max_steps=1 > log 2>&1 || fail "$kind bias: $(tail -3 log)"
  [ "$(grep -c '"completion_tokens":\[11,11,11,11,11,11,11\]' $kind-bias/rollouts/step-1.jsonl)" = 12 ] || fail "$kind: no bias: $(head -1 $kind-bias/rollouts/step-1.jsonl)"
  kill $process
done

# Killed and started again, anew with the weights of its command line: the run waits, gives it the present weights and
# ends with the same bits. Of two servers the other goes on alone meanwhile.
for staleness in 0 1; do
  [ $staleness = 0 ] && same=sync-none || same=stale
  sed 's/^while read -r line; do/while read -r line; do sleep 0.1/' even.sh > even_slow.sh
  grpo killed-$staleness rl.max_staleness=$staleness rollout.server.urls=[$url] 'rewards=[{name: even, command: [sh, even_slow.sh]}]' > log 2>&1 &
  run=$!
  until_rows killed-$staleness 1 $run
  kill -KILL $first
  wait $first 2> /dev/null
  serve "${url##*:}"
  first=$process
  wait $run || fail "killed server, staleness $staleness: $(tail -3 log)"
  cmp $same/final/model.safetensors killed-$staleness/final/model.safetensors || fail "a server that was killed changed the run, staleness $staleness"
done
grpo two rollout.server.urls=[http://127.0.0.1:9,$url] > log 2>&1 || fail "one of two servers: $(tail -3 log)"
cmp sync-none/final/model.safetensors two/final/model.safetensors || fail "another server gives other samples"

# Busy for a while: the run waits as for one that is gone, and says so. Its first request is the check at the start.
stand_in busy.log sglang $url --busy 14 18 429
grpo busy rollout.server.kind=sglang rollout.server.urls=[$address] rollout.server.wait_minutes=1 train.max_steps=4 > log 2>&1 || fail "a busy server: $(tail -3 log)"
grep -q busy busy.log && grep -q 'warning: rollout.server: http.* is busy (/generate: status 429 .too many requests.); waiting up to 75 s' log || fail "a busy server, and nothing is said: $(cat log)"
grep -q 'warning: .* takes requests again, after [0-9]* s' log || fail "it is not busy any more: $(cat log)"
cmp sglang-none/final/model.safetensors busy/final/model.safetensors || fail "a busy server changed the run"
kill $process

# Two ranks ask for their shares, whatever they share out; of those that compute the same rows one asks.
for mesh in data fsdp tensor; do
  for staleness in 0 1; do
    out=$mesh-$staleness
    [ $staleness = 0 ] && same=sync-none || same=stale
    grpo $out --nproc 2 mesh.$mesh=2 rl.max_staleness=$staleness rollout.server.urls=[$url] > log 2>&1 || fail "$out: $(tail -3 log)"
    diff <(tokens $same) <(tokens $out) > /dev/null || fail "$out: ranks sample other tokens"
    [ "$(versions $same 6)" = "$(versions $out 6)" ] || fail "$out: versions $(versions $out 6)"
    python3 "$here/same_losses.py" $same/metrics.jsonl $out/metrics.jsonl reward_mean grad_norm || fail "$out differs from one rank"
  done
done
cmp sync-none/rollouts/step-1.jsonl data-0/rollouts/step-1.jsonl || fail "two ranks sample other completions"

# A server that is killed and comes back, for two ranks: the same bits again.
for staleness in 0 1; do
  out=killed-ranks-$staleness
  grpo $out --nproc 2 rl.max_staleness=$staleness rollout.server.urls=[$url] 'rewards=[{name: even, command: [sh, even_slow.sh]}]' > log 2>&1 &
  run=$!
  until_rows $out 1 $run
  kill -KILL $first
  wait $first 2> /dev/null
  serve "${url##*:}"
  first=$process
  wait $run || fail "$out: $(tail -3 log)"
  cmp data-$staleness/final/model.safetensors $out/final/model.safetensors || fail "$out: a server that was killed changed the run"
done
# One that loses its weights between two requests is loaded again, once, whichever of the ranks find out; so is one that
# is killed and comes back. The results stay the same.
forgets() {  # KIND METHOD N: after N of its requests for completions, which is in the second step
  stand_in forgets.log $1 $url --forget-after $3
  grpo forgets-$1-$2 --nproc 2 adapter.method=$2 adapter.rank=4 rollout.server.kind=$1 rollout.server.urls=[$address] train.max_steps=4 > log 2>&1 || fail "$1 $2 forgets: $(tail -3 log)"
  grep -q forgot forgets.log || fail "$1 $2: the server did not forget"
  [ "$(loads forgets.log)" = "0 1 1 2 3 " ] || fail "$1 $2 forgets: loaded $(loads forgets.log)"
  cmp $1-$2-0/final/*model.safetensors forgets-$1-$2/final/*model.safetensors || fail "$1 $2: a server that forgets changed the run"
  kill $process
}
forgets sglang none 18
forgets sglang lora 18
forgets vllm lora 5
stand_in before.log sglang $url
grpo restarted --nproc 2 rollout.server.kind=sglang rollout.server.urls=[$address] train.max_steps=4 'rewards=[{name: even, command: [sh, even_slow.sh]}]' > log 2>&1 &
run=$!
until_rows restarted 1 $run
kill -KILL $process
wait $process 2> /dev/null
stand_in after.log sglang $url --port "${address##*:}"
wait $run || fail "a server that is started again: $(tail -3 log)"
for life in before after; do
  [ -n "$(loads $life.log)" ] || fail "nothing was loaded $life it was started again"
  [ -z "$(loads $life.log | tr ' ' '\n' | sort | uniq -d)" ] || fail "loaded $life it was started again: $(loads $life.log)"
done
cmp sglang-none-0/final/model.safetensors restarted/final/model.safetensors || fail "a server that was started again changed the run"
kill $process

# While a server is loading: rank 0 is gone, then the other one. Nobody waits for long.
stand_in slow.log sglang $url --load-seconds 1000
for rank in 0 1; do
  : > slow.log
  "$temper" grpo run.yaml output_dir=gone-$rank --nproc 2 rollout.server.kind=sglang rollout.server.urls=[$address] > log 2>&1 &
  run=$! before=$SECONDS
  loads_or_ends() { grep -q loaded slow.log || has_ended $run; }
  comes_true loads_or_ends || fail "rank $rank: nothing is loaded: $(tail -3 log)"
  for p in $(pgrep -P $run); do tr '\0' '\n' < /proc/$p/environ | grep -qx "RANK=$rank" && kill -KILL $p; done
  wait $run && fail "a run without its rank $rank"
  [ $((SECONDS - before)) -le 200 ] || fail "rank $rank gone: $((SECONDS - before)) s"
done
kill $process
# Gone for longer than the tries take: the run says so and waits, as rollout.server.wait_minutes says. Ctrl-C ends the
# waiting, and the same command goes on.
status=0; before=$SECONDS
"$temper" grpo run.yaml output_dir=dead rollout.server.urls=[http://127.0.0.1:9] rollout.server.wait_minutes=5 2> err > /dev/null &
dead=$!
stand_in always_busy.log sglang $url --busy 1 1000 503
always_busy=$process
"$temper" grpo run.yaml output_dir=always_busy rollout.server.kind=sglang rollout.server.sync=none rollout.server.urls=[$address] 2> always_busy.err > /dev/null &
busy_run=$!
lose_server() {  # OUTPUT_DIR STALENESS: a run in $run, its server killed, and the run waits
  "$temper" grpo run.yaml output_dir=$1 rl.max_staleness=$2 rollout.server.urls=[$url] rollout.server.wait_minutes=5 'rewards=[{name: even, command: [sh, even_slow.sh]}]' > $1.log 2>&1 &
  run=$!
  until_rows $1 1 $run
  kill -KILL $first
  comes_true grep -q "^warning: rollout.server: $url does not answer; waiting up to 315 s" $1.log || fail "$1: nothing is said: $(tail -3 $1.log)"
}
return_server() { serve "${url##*:}"; first=$process; }
lose_server waits 1
waiting=$SECONDS
# A url that never answered is not waited for.
wait $dead || status=$?
[ $status = 1 ] && grep -q 'http://127.0.0.1:9 failed 4 times' err || fail "no server: $status $(cat err)"
# The wait that it does not have is 315 s.
[ $((SECONDS - before)) -le 200 ] || fail "no server: $((SECONDS - before)) s"
status=0; wait $busy_run || status=$?
[ $status = 1 ] && grep -q 'took no request in 15 s.*503' always_busy.err || fail "always busy: $status, $(cat always_busy.err)"
kill $always_busy
while [ $((SECONDS - waiting)) -lt 17 ]; do sleep 0.2; done
return_server
wait $run || fail "a server that came back late: $(tail -3 waits.log)"
grep -q "$url answers again, after [0-9][0-9]* s" waits.log || fail "it is back: $(cat waits.log)"
cmp stale/final/model.safetensors waits/final/model.safetensors || fail "a server that came back late changed the run"
for staleness in 0 1; do
  lose_server stopped-$staleness $staleness
  status=0
  kill -INT $run
  wait $run || status=$?
  [ $status = 130 ] && grep -q 'asked to stop while no server answers' stopped-$staleness.log || fail "Ctrl-C while waiting: $status, $(tail -3 stopped-$staleness.log)"
  return_server
  grpo stopped-$staleness rl.max_staleness=$staleness rollout.server.urls=[$url] > log 2>&1 || fail "resumed after Ctrl-C: $(tail -3 log)"
  [ "$(wc -l < stopped-$staleness/metrics.jsonl)" = 6 ] || fail "resumed after Ctrl-C: $(wc -l < stopped-$staleness/metrics.jsonl) steps"
done
cmp sync-none/final/model.safetensors stopped-0/final/model.safetensors || fail "Ctrl-C while waiting changed the run"

# What goes wrong.
refused() { status=0; grpo refused "${@:2}" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$1" err || fail "expected $1, got $status: $(cat err)"; }
refused "rl.on_mismatch" rl.max_staleness=1 rl.on_mismatch=stop
refused "NO_SUCH_KEY" rollout.server.urls=[$url] rollout.server.api_key_env=NO_SUCH_KEY
refused "http://HOST:PORT" rollout.server.urls=[localhost:8000]
refused "rollout.server.urls" rollout.server.kind=vllm
refused "rollout.no_repeat_ngram" rollout.no_repeat_ngram=2 rollout.server.kind=vllm rollout.server.urls=[$url]
refused "openai | sglang | vllm" rollout.server.kind=tgi rollout.server.urls=[$url]
KEY=secret serve 0 --api-key-env KEY
WRONG=x grpo key rollout.server.urls=[$address] rollout.server.api_key_env=WRONG 2> err > /dev/null && fail "a wrong key was taken"
grep -q "401" err || fail "a wrong key: $(cat err)"
KEY=secret grpo key rollout.server.urls=[$address] rollout.server.api_key_env=KEY train.max_steps=1 > log 2>&1 || fail "a key: $(tail -3 log)"
# Weights that are none leave the server as it was.
post $url/update_weights_from_disk '{"model_path": "nothing"}' | grep -q '"error"' || fail "weights that are none"
mv model whole && tiny_model 62 32 48 1 2 2 16 && mv model smaller && mv whole model || fail "no smaller model"
post $url/update_weights_from_disk '{"model_path": "smaller"}' | grep -q 'smaller: lacks model.layers.1' || fail "a model of another shape"
grpo after rollout.server.urls=[$url] > log 2>&1 || fail "after bad weights: $(tail -3 log)"
cmp sync-none/final/model.safetensors after/final/model.safetensors || fail "bad weights left something"
exit $bad
