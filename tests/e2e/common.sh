# What the end-to-end tests share: source it with the program as $1. Leaves the shell in an empty directory that goes
# with it.
temper=$1
bad=0
fail() { echo "FAILED: $*" >&2; bad=1; }  # go on; the script ends with `exit $bad`
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# value FILE METRIC: its values, a line each. numbers FILE: all but times and memory of a run of reinforcement learning.
value() { grep -o "\"$2\": [^,}]*" "$1" | cut -d' ' -f2; }
numbers() { sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes|rollout_seconds|rollout_latency_p50|rollout_latency_p95|reward_seconds|train_seconds)": [^,}]*,?//g' "$1"; }
zero_diffs() { [ "$(value "$1" sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "$1: the sampler is not the trainer"; }

# comes_true COMMAND...: waits until it succeeds, for at most two minutes. A wait for an event is as short as the
# machine is fast.
comes_true() {
  local until=$((SECONDS + 120))
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.05
  done
}
# until_rows OUT N [PROCESS]: waits until the run in OUT has written N rows of metrics, or PROCESS has ended.
has_rows() { [ -s "$1/metrics.jsonl" ] && [ "$(wc -l < "$1/metrics.jsonl")" -ge "$2" ] || { [ -n "${3:-}" ] && has_ended "$3"; }; }
until_rows() { comes_true has_rows "$@" && has_rows "$1" "$2" || fail "$1: no $2 rows: $(tail -3 "$1.log" 2> /dev/null)"; }
# has_ended PROCESS: it is no more, or waits for its parent to ask for its status.
has_ended() { ! [ -e "/proc/$1/status" ] || grep -q '^State:.Z' "/proc/$1/status" 2> /dev/null || ! [ -e "/proc/$1/status" ]; }
# killed_after SECONDS COMMAND...: kills it after that time, wherever it is then, and waits until it has let go of its
# files, which `timeout -s KILL` does not.
killed_after() {
  local seconds=$1 victim
  shift
  "$@" & victim=$!
  sleep "$seconds"
  kill -KILL $victim 2> /dev/null
  wait $victim
}
# free_port: one that nothing uses, below those that the system gives to connections.
free_port() {
  python3 -c '
import random, socket
while True:
    with socket.socket() as s:
        port = random.randrange(20000, 32000)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(port)
        break'
}
# address_of LOG PROCESS: waits until the server says its address there; in $address. Fails where the server ends.
says_address() { address=$(grep -om1 'http://[0-9.:]*' "$1") || has_ended "$2"; }
address_of() { address= && comes_true says_address "$@" && [ -n "$address" ]; }

# post URL JSON: the body of the answer, whatever its status.
post() {
  python3 -c '
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.read().decode())' "$@"
}

# tiny_model VOCABULARY HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS HEAD_DIM: random weights in model/, its config in
# config.json.
tiny_model() {
  cat > config.json <<J
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": $1, "hidden_size": $2, "intermediate_size": $3,
 "num_hidden_layers": $4, "num_attention_heads": $5, "num_key_value_heads": $6, "head_dim": $7, "tie_word_embeddings": true, "eos_token_id": 2}
J
  "$temper" init --config config.json --seed 3 --output model > /dev/null
}
odd_model() { tiny_model 331 72 100 3 6 2 20; }    # no width is a multiple of a vector's
small_model() { tiny_model 61 32 48 2 2 1 16; }

# even_reward: even.sh, a reward command that gives the share of a completion's tokens that are even.
even_reward() {
  cat > even.sh <<'S'
while read -r line; do
  ids=${line#*completion_tokens\":[}; ids=${ids%%]*}
  n=0; even=0; IFS=,; for id in $ids; do n=$((n + 1)); [ $((id % 2)) = 0 ] && even=$((even + 1)); done; unset IFS
  echo "{\"reward\": $((1000 * even / n))e-3}"
done
S
}

# json_model: in model/, a model whose tokens can write JSON, with a chat template that has tool calls.
json_model() {
  python3 - "$TEMPER_SOURCE_DIR" <<'P'
import json, sys
tokenizer = json.load(open(sys.argv[1] + "/tests/golden/tokenizers/qwen2.json"))["tokenizer"]
tokenizer["post_processor"] = None
size = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
json.dump(tokenizer, open("tokenizer.json", "w"))
end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|end|>")
json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True, "eos_token_id": end,
           "initializer_range": 0.2, "max_position_embeddings": 1024}, open("json_config.json", "w"))
P
  "$temper" init --config json_config.json --seed 3 --output model > /dev/null || fail "init: $?"
  mv tokenizer.json model/
  echo '{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}"}' > model/tokenizer_config.json
}
