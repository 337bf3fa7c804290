#!/usr/bin/env bash
# A .gguf file as the model of every verb, as a user types it: the same scores as the model that it was made of; adapters
# and full fine-tuning on it, its export, and what is wrong with it.
set -u
export OMP_NUM_THREADS=1
. "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
python3 - "$(dirname "${BASH_SOURCE[0]}")" <<'P' || fail "no tokenizer"
import json, os, sys
# Of a tokenizer of the goldens what GGUF holds.
root = sys.argv[1] if os.path.isabs(sys.argv[1]) else os.path.join(os.environ["OLDPWD"], sys.argv[1])
tokenizer = json.load(open(os.path.join(root, "../golden/tokenizers/qwen2.json")))["tokenizer"]
tokenizer["normalizer"] = None
for token in tokenizer["added_tokens"]:
    token.update(lstrip=False, rstrip=False, single_word=False)
os.mkdir("tokenizer")
json.dump(tokenizer, open("tokenizer/tokenizer.json", "w"))
json.dump({"eos_token": "<|end|>"}, open("tokenizer/tokenizer_config.json", "w"))
open("tokenizer/chat_template.jinja", "w").write(
    "{% for m in messages %}<|begin_of_text|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|begin_of_text|>assistant\n{% endif %}")
json.dump({"model_type": "llama", "vocab_size": 720, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "max_position_embeddings": 256, "eos_token_id": 701, "tie_word_embeddings": False}, open("config.json", "w"))
P
"$temper" init --config config.json --tokenizer tokenizer --output model > log || fail "init: $?"
model=model
"$temper" export --model $model --output gguf --format gguf > log 2> err || fail "export: $(cat err)"
file=$(ls gguf/*.gguf)

awk 'BEGIN { for (i = 0; i < 6; ++i) print "{\"text\": \"the " i " + brown " 2 * i " = fox\"}" }' > texts.jsonl
for of in $model $file; do
  "$temper" tokenize --model $of --input texts.jsonl --output ids-$(basename $of) || fail "tokenize $of: $?"
done
cmp ids-model ids-$(basename $file) || fail "other ids"
cp ids-model rows.jsonl
sed 's/"tokens"/"input_ids"/' rows.jsonl > train.jsonl
sed 's/"text"/"prompt"/' texts.jsonl > prompts.jsonl
# same VERB ARGUMENTS...: the verb writes the same for the file as for the model.
same() {
  local verb=$1; shift
  "$temper" $verb --model $model --output of-model "$@" 2> err || fail "$verb: $(cat err)"
  "$temper" $verb --model $file --output of-file "$@" 2> err || fail "$verb of the file: $(cat err)"
  cmp of-model of-file || fail "$verb: the file gives something else"
}
same score --input rows.jsonl --top-logprobs 3
same generate --input prompts.jsonl --max-new-tokens 8 --temperature 0
same generate --input prompts.jsonl --max-new-tokens 8 --seed 3
echo '{"messages": [{"role": "user", "content": "the fox"}]}' > chat.jsonl
same generate --input chat.jsonl --max-new-tokens 8 --temperature 0

# Training on it gives the bits of training on the model.
run() {
  local out=$1 base=$2; shift 2
  "$temper" sft model.path=$base data.train=train.jsonl train.max_steps=2 optimizer.learning_rate=0.01 output_dir=$out metrics.sinks=[jsonl] "$@" > log 2>&1 ||
    fail "sft on $base: $(tail -3 log)"
}
for kind in lora none; do
  run $kind-model $model adapter.method=$kind
  run $kind-file $file adapter.method=$kind
done
cmp lora-model/final/adapter_model.safetensors lora-file/final/adapter_model.safetensors || fail "another adapter"
grep -q "$(basename $file)" lora-file/final/adapter_config.json || fail "the adapter's base: $(cat lora-file/final/adapter_config.json)"
cmp none-model/final/model.safetensors none-file/final/model.safetensors || fail "another model"
for name in config.json tokenizer.json; do [ -s none-file/final/$name ] || fail "final lacks $name"; done
"$temper" score --model none-file/final --input rows.jsonl --output of-file || fail "score of final: $?"
"$temper" score --model none-model/final --input rows.jsonl --output of-model || fail "score of final: $?"
cmp of-model of-file || fail "final is another model"
"$temper" score --model lora-file/final --input rows.jsonl --output of-file 2> err || fail "score of the adapter: $(cat err)"
"$temper" score --model $model --adapter lora-model/final --input rows.jsonl --output of-model || fail "score of the adapter: $?"
cmp of-model of-file || fail "the adapter on the file gives something else"
"$temper" export --model $file --adapter lora-file/final --output merged > log || fail "export of the file: $?"
"$temper" export --model $model --adapter lora-model/final --output merged-model > log || fail "export: $?"
cmp merged/model.safetensors merged-model/model.safetensors || fail "merged: another model"
"$temper" export --model $file --output again --format gguf > log || fail "export to gguf: $?"
cmp again/*.gguf $file || fail "the file that is written again is another one"
"$temper" check sft model.path=$file data.train=train.jsonl output_dir=none > log 2> err || fail "check: $(cat log err)"

# refuse TEXT ARGUMENTS...: exit 2, one line that says TEXT.
refuse() {
  local text=$1 status=0; shift
  "$temper" "$@" > out 2> err || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "expected $text: status $status: $(cat err)"
}
refuse 'it holds a GGUF file: name the file, gguf/' score --model gguf --input rows.jsonl --output none
refuse 'missing.gguf: no such file' score --model missing.gguf --input rows.jsonl --output none
head -c 3000 $file > short.gguf
refuse 'short.gguf' score --model short.gguf --input rows.jsonl --output none
refuse 'is a directory, whose own tokenizer is read' tokenize --model $model --tokenizer $model --input texts.jsonl --output none
"$temper" tokenize --model $file --tokenizer $model --input texts.jsonl --output of-file || fail "--tokenizer: $?"
cmp of-file ids-model || fail "--tokenizer: other ids"
exit $bad
