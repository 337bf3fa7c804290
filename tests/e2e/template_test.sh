#!/usr/bin/env bash
# The chat template and its variables that a run trains with belong to what it saves: every verb writes that prompt for
# the model, for the adapter on its base, and for the two merged. $1: the program.
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
address_of serve.log $process || fail "serve: no address: $(cat serve.err)"
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
# scores FILE ADAPTER: what eval --pairs says of the pairs with this adapter.
scores() { "$temper" eval --input pairs.jsonl --pairs --json --model model --adapter "$2" > "$1" 2> log && grep -q '"margin"' "$1"; }
cp -r lora/final paired && cp -r lora/final bare && rm bare/chat_template.jinja
echo "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}" > paired/chat_template.jinja
scores paired.scores paired || fail "eval --pairs: $(cat log)"
scores bare.scores bare || fail "eval --pairs without a template of the adapter's: $(cat log)"
cmp -s paired.scores bare.scores && fail "pairs are ranked without the adapter's template"
printf 'hi\n' | "$temper" chat --model model --adapter lora/final --max-new-tokens 2 > log 2>&1 || fail "chat: $(cat log)"

# A template that writes today's date: a run keeps that of its first start, on all ranks and where it goes on elsewhere.
# Two time zones that are 26 hours apart never have the same date.
early() { TZ=AAA+12 "$@"; }
late() { TZ=BBB-14 "$@"; }
echo '{{ strftime_now("%Y-%m-%d") }}{% for m in messages %} {{ m.content }}{% endfor %}' > dated.jinja
for i in $(seq 12); do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i+1\"}, {\"role\": \"assistant\", \"content\": \"2\"}]}"; done > chat.jsonl
dated() { "$temper" sft model.path=model data.train=chat.jsonl data.chat_template=dated.jinja data.train_on=all train.max_steps=6 train.batch_size=2 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] "$@"; }
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
today=$(early date +%F)
early dated output_dir=dated > log 2>&1 || fail "a template with a date: $(cat log)"
grep -q "template_date: *[\"']*${today}T" dated/config.yaml || fail "config.yaml does not say the date $today: $(grep -n date dated/config.yaml)"
early dated output_dir=cut train.save_every=1 train.max_steps=3 > log 2>&1 || fail "three steps: $(cat log)"
late dated output_dir=cut train.save_every=1 optimizer.schedule=constant > log 2>&1 || fail "resumed elsewhere: $(cat log)"
grep -q "template_date: *[\"']*${today}T" cut/config.yaml || fail "a resumed run has another date: $(grep -n date cut/config.yaml)"
grep -q "template_date" log && fail "a resumed run has another date: $(cat log)"
late dated output_dir=pinned data.template_date="$today" > log 2>&1 || fail "data.template_date: $(cat log)"
cmp <(losses dated) <(losses pinned) || fail "data.template_date is not what the template writes"
late dated output_dir=other > log 2>&1
cmp -s <(losses dated) <(losses other) && fail "the date changes no loss: the comparisons above prove nothing"
early "$temper" check sft model.path=model data.train=chat.jsonl data.chat_template=dated.jinja output_dir=checked > log 2>&1
grep -q "it writes the date, which is ${today}T.*data.template_date" log || fail "check does not say the date: $(cat log)"
early "$temper" check sft model.path=model data.train=chat.jsonl data.chat_template=dated.jinja output_dir=checked data.template_date=soon > log 2>&1
grep -q 'data.template_date: found `soon`, expected a date as' log || fail "a date that is none: $(cat log)"
# Ranks in two time zones.
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port)
RANK=1 late dated output_dir=zones > log.1 2>&1 & second=$!
RANK=0 early dated output_dir=zones > log 2>&1 || fail "ranks in two time zones: $(cat log log.1)"
wait $second || fail "ranks in two time zones: $(cat log.1)"
unset WORLD_SIZE MASTER_ADDR MASTER_PORT
paste -d' ' <(losses dated | cut -d: -f2) <(losses zones | cut -d: -f2) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) exit 1; n++ } END { exit n == 6 ? 0 : 1 }' || fail "ranks in two time zones render two dates"
# A teacher's file is of one date, which its runs take.
teacher="model.path=model distill.teacher=model data.train=chat.jsonl data.chat_template=dated.jinja data.train_on=all distill.teacher_logprobs=teacher.safetensors train.max_steps=1 metrics.sinks=[jsonl]"
early "$temper" distill --precompute $teacher output_dir=distilled > log 2>&1 || fail "--precompute: $(cat log)"
late "$temper" distill $teacher output_dir=distilled > log 2>&1 || fail "a teacher's file of another day: $(cat log)"
late "$temper" distill $teacher output_dir=distilled2 data.template_date=2001-02-03 > log 2>&1
grep -q "data.template_date: found 2001-02-03.*wrote ${today}T" log || fail "a teacher's file of another date: $(cat log)"
# The working verbs have today's, or the one that is asked for.
cp -r model dated-model && cp dated.jinja dated-model/chat_template.jinja
text() { "$temper" tokenize --model dated-model --input messages.jsonl --output out.jsonl "$@" 2> log || fail "tokenize $*: $(cat log)"; grep -o '"text":"[^"]*"' out.jsonl; }
[ "$(early text)" = "\"text\":\"$today 1+1\"" ] || fail "tokenize writes another date: $(early text)"
[ "$(late text --template-date 2024-07-26)" = '"text":"2024-07-26 1+1"' ] || fail "--template-date: $(text --template-date 2024-07-26)"
# Text ends with config.json's token where no file of the tokenizer names one, in `tokenize` as in training.
cp -r model silent
rm -f silent/tokenizer_config.json silent/generation_config.json
echo '{"prompt": "1+1", "completion": "2"}' > text.jsonl
"$temper" tokenize --model silent --input text.jsonl --output out.jsonl 2> log || fail "tokenize text: $(cat log)"
end=$(grep -o '"eos_token_id": *[0-9]*' silent/config.json | grep -o '[0-9]*$')
first tokens out.jsonl | grep -q ",$end\]$" || fail "tokenize ends a text without $end: $(cat out.jsonl)"
# Lists of text parts reach a template that reads them, in every verb; another one gets their joined text.
parts='[{"role": "user", "content": [{"type": "text", "text": "1+"}, {"type": "text", "text": "1"}]}]'
echo "{\"prompt\": $parts}" > prompts.jsonl
echo "{\"messages\": $parts}" > messages.jsonl
cp -r model lists
echo '{% for m in messages %}{{ m.content if m.content is string else m.content | map(attribute="text") | join("/") }}{% endfor %}' > lists/chat_template.jinja
"$temper" grpo run.yaml model.path=lists output_dir=listed > log 2>&1 || fail "grpo of parts: $(tail -3 log)"
listed=$(trained listed)
[ "$listed" != "$base" ] && [ "$(asked --model lists)" = "$listed" ] && [ "$(tokenized lists)" = "$listed" ] || fail "parts under a template that reads them: $listed"
[ "$(asked --model model)" = "$base" ] && [ "$(tokenized model)" = "$base" ] || fail "parts under a template that does not"
"$temper" tokenize --model lists --input messages.jsonl --output out.jsonl && grep -q '"text":"1+/1"' out.jsonl || fail "the text of parts: $(cat out.jsonl)"
exit $bad
