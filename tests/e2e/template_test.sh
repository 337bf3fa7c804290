#!/usr/bin/env bash
# The chat template and its variables that a run trains with belong to what it saves: every verb writes that prompt for the model, for
# the adapter on its base, and for the two merged. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
even_reward
python3 - "$TEMPER_SOURCE_DIR" <<'P' || exit 1
import json, sys
tokenizer = json.load(open(sys.argv[1] + "/tests/golden/tokenizers/qwen2.json"))["tokenizer"]
tokenizer["post_processor"] = None
size = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|end|>")
json.dump(tokenizer, open("tokenizer.json", "w"))
json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True, "eos_token_id": end}, open("config.json", "w"))
json.dump({"eos_token": "<|end|>", "chat_template":
           "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is defined and enable_thinking is false %}NOTHINK{{ mark }}{% endif %}"},
          open("tokenizer_config.json", "w"))
json.dump([{"role": "user", "content": "1+1"}], open("messages.json", "w"))
P
"$temper" init --config config.json --seed 3 --output model > /dev/null || fail "init: $?"
cp tokenizer.json tokenizer_config.json model
echo "{\"prompt\": $(cat messages.json)}" > prompts.jsonl
echo "{\"messages\": $(cat messages.json)}" > messages.jsonl
echo 'OTHER{{ messages[0].content }}{{ mark }}' > other.jinja
cat > run.yaml <<'Y'
model: {path: model}
data: {train: prompts.jsonl}
train: {max_steps: 1}
optimizer: {learning_rate: 1.0e-3, schedule: constant}
rl: {group_size: 2, prompts_per_rollout: 1, beta: 0}
rollout: {max_new_tokens: 4}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y
run() { "$temper" grpo run.yaml output_dir="$@" > log 2>&1 || fail "grpo $*: $(tail -3 log)"; }
first() { tr -d ' ' < "$2" | grep -o "\"$1\":\[[0-9,]*\]" | head -1 | cut -d: -f2; }
trained() { first prompt_tokens "$1/rollouts/step-1.jsonl"; }
# asked FLAG...: the tokens of the prompt as `temper generate` makes them.
asked() { "$temper" generate --input prompts.jsonl --output out.jsonl --max-new-tokens 2 "$@" 2> log || fail "generate $*: $(cat log)"; first prompt_tokens out.jsonl; }
tokenized() { "$temper" tokenize --model "$1" --input messages.jsonl --output out.jsonl --add-generation-prompt 2> log || fail "tokenize $1: $(cat log)"; first tokens out.jsonl; }

run plain
base=$(trained plain)
[ -n "$base" ] && [ "$(asked --model model)" = "$base" ] && [ "$(asked --model plain/final)" = "$base" ] || fail "a run without variables: $base"
[ ! -e plain/final/chat_template.jinja ] || fail "a template was written that nobody asked for"

variables="data.template_variables={enable_thinking: false, mark: '\"!'}"
run nothink "$variables"
prompt=$(trained nothink)
[ -n "$prompt" ] && [ "$prompt" != "$base" ] || fail "template_variables change nothing: $prompt"
[ "$(asked --model nothink/final)" = "$prompt" ] && [ "$(tokenized nothink/final)" = "$prompt" ] || fail "the trained model gets another prompt"
run thinks model.path=nothink/final 'data.template_variables={enable_thinking: true}'
[ "$(trained thinks)" = "$base" ] && [ "$(asked --model thinks/final)" = "$base" ] || fail "what is saved cannot be overridden"
run other data.chat_template=other.jinja "data.template_variables={mark: '?'}"
[ "$(asked --model other/final)" = "$(trained other)" ] && [ "$(trained other)" != "$base" ] || fail "data.chat_template is not saved"

# An adapter keeps them, also when its training goes on.
run lora "$variables" adapter.method=lora adapter.rank=2
run onward adapter.path=lora/final
for directory in lora onward; do
  [ "$(trained $directory)" = "$prompt" ] && [ "$(asked --model model --adapter $directory/final)" = "$prompt" ] || fail "$directory: the adapter gets another prompt"
done
"$temper" export --model model --adapter lora/final --output merged > log 2>&1 || fail "export: $(cat log)"
[ "$(asked --model merged)" = "$prompt" ] || fail "the merged model gets another prompt"
"$temper" export --model model --adapter lora/final --output gguf --format gguf > log 2>&1 && { grep -aq 'set enable_thinking = false' gguf/*.gguf || fail "the GGUF file has another template"; }

# Every row has the template of its adapter, in episodes too.
echo "{\"adapter\": \"a\", \"prompt\": $(cat messages.json)}" | cat prompts.jsonl - prompts.jsonl > named.jsonl
printf '%s\n' "$base" "$prompt" "$base" > expected
echo '[{"name": "f", "command": ["cat"]}]' > tools.json
for flags in "" "--tools tools.json"; do
  "$temper" generate --model model --adapter a=lora/final --input named.jsonl --output out.jsonl --max-new-tokens 2 $flags 2> log || fail "named adapters $flags: $(cat log)"
  tr -d ' ' < out.jsonl | grep -o '"prompt_tokens":\[[0-9,]*\]' | cut -d: -f2 | cmp - expected || fail "named adapters $flags: $(cat out.jsonl)"
done

# So has every model of a server.
"$temper" serve --model model --adapter a=lora/final --port 0 > serve.log 2> serve.err &
process=$!
for i in $(seq 200); do
  address=$(grep -om1 'http://[0-9.:]*' serve.log) && break
  sleep 0.1
done
python3 - "$address" > served <<'P' || fail "serve: $(cat serve.err)"
import json, sys, urllib.request
for model in ["model", "a"]:
    body = json.dumps({"model": model, "messages": json.load(open("messages.json")), "max_tokens": 2, "return_token_ids": True})
    request = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", body.encode(), {"Content-Type": "application/json"})
    print(json.dumps(json.load(urllib.request.urlopen(request))["prompt_token_ids"], separators=(",", ":")))
P
kill -TERM $process
wait $process
head -2 expected | cmp - served || fail "serve: $(cat served)"

echo "{\"prompt\": $(cat messages.json), \"chosen\": [{\"role\": \"assistant\", \"content\": \"2\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"3\"}]}" > pairs.jsonl
margin() { "$temper" eval --input pairs.jsonl --pairs --json "$@" 2>> log | grep -o '"margin".*' || fail "eval --pairs $*: $(cat log)"; }
cp -r lora/final bare && rm bare/chat_template.jinja
[ "$(margin --model model --adapter lora/final)" != "$(margin --model model --adapter bare)" ] || fail "pairs are ranked without the adapter's template"
printf 'hi\n' | "$temper" chat --model model --adapter lora/final --max-new-tokens 2 > log 2>&1 || fail "chat: $(cat log)"
exit $bad
