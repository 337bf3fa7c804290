#!/usr/bin/env bash
# Hostile and broken clients: the server goes on answering others, and its memory does not grow. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT

# A model whose tokens can write JSON, with a chat template.
python3 - "$TEMPER_SOURCE_DIR" <<'P'
import json, sys
tokenizer = json.load(open(sys.argv[1] + "/tests/golden/tokenizers/qwen2.json"))["tokenizer"]
tokenizer["post_processor"] = None
size = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
json.dump(tokenizer, open("tokenizer.json", "w"))
end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|end|>")
json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True, "eos_token_id": end,
           "initializer_range": 0.2, "max_position_embeddings": 1024}, open("config.json", "w"))
P
"$temper" init --config config.json --seed 3 --output model > /dev/null || fail "init: $?"
mv tokenizer.json model/
echo '{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}"}' > model/tokenizer_config.json

for key in "" secret; do
  : > serve.log  # or the address of the server before is read
  KEY=$key "$temper" serve --model model --port 0 --max-request-bytes 4194304 ${key:+--api-key-env KEY} > serve.log 2> serve.err &
  process=$!
  for i in $(seq 300); do
    address=$(grep -om1 'http://[0-9.:]*' serve.log) && break
    sleep 0.1
  done
  # With a key only the cases in which it matters that the client has none.
  cases=; [ -n "$key" ] && cases="large_bodies endless_heads pages"
  ONE_BODY=4194304 python3 "$here/hostile_clients.py" "$address" $process "$key" $cases || bad=1
  status=0
  kill -TERM $process
  wait $process || status=$?
  [ $status = 0 ] || fail "the server ended with $status: $(tail -3 serve.err)"
done
exit $bad
