#!/usr/bin/env bash
# export --format gguf as a user types it: one file, an adapter merged, what has no form refused before anything is
# written.
set -u
export OMP_NUM_THREADS=1
. "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
odd_model

"$temper" export --model model --output gguf --format gguf --dtype bfloat16 > log 2> err || fail "export: $(cat err)"
[ "$(ls gguf)" = model-bfloat16.gguf ] || fail "the output directory holds $(ls gguf)"
grep -q 'bfloat16, keys and tensors read back equal' log || fail "export says $(cat log)"
[ "$(head -c 4 gguf/model-bfloat16.gguf)" = GGUF ] || fail "not a GGUF file"
[ ! -s err ] || fail "export warns: $(cat err)"

# An adapter that is merged on the way gives the file of the merged model.
awk 'BEGIN { for (i = 0; i < 8; ++i) print "{\"input_ids\": [" i ", 7, " 2 * i ", 9, 11]}" }' > rows.jsonl
sed 's/input_ids/tokens/' rows.jsonl > scored.jsonl
"$temper" sft model.path=model data.train=rows.jsonl train.max_steps=2 optimizer.learning_rate=0.01 adapter.method=lora adapter.rank=2 output_dir=lora \
  metrics.sinks=[jsonl] > log 2>&1 || fail "sft: $(tail -3 log)"
"$temper" export --model model --adapter lora/final --output at-once --format gguf > log || fail "export --adapter: $?"
"$temper" export --model model --adapter lora/final --output merged/model > log || fail "export to hf: $?"
"$temper" export --model merged/model --output in-two --format gguf > log || fail "export of the merged: $?"
cmp at-once/*.gguf in-two/*.gguf || fail "a merged adapter gives another file"
"$temper" export --model model --output plain --format gguf > log || fail "export: $?"
cmp -s at-once/*.gguf plain/*.gguf && fail "the adapter is not in the file"
"$temper" export --model model --storage nf4 --output nf4 --format gguf > log || fail "export --storage nf4: $?"
cmp -s nf4/*.gguf plain/*.gguf && fail "--storage changes nothing"

# Adapters of routers, and of a head that is tied to the embeddings, are in the files as well.
cat > mixture.json <<'J'
{"model_type": "qwen3_moe", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 20,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "num_experts": 4,
 "num_experts_per_tok": 2, "norm_topk_prob": true, "max_position_embeddings": 256}
J
sed 's/"model_type"/"tie_word_embeddings": true, "model_type"/' config.json > tied.json
for kind in mixture:gate tied:lm_head; do
  name=${kind%:*} target=${kind#*:}
  "$temper" init --config $name.json --output $name > /dev/null || fail "$name: init"
  "$temper" sft model.path=$name data.train=rows.jsonl train.max_steps=3 optimizer.learning_rate=0.3 adapter.method=lora adapter.rank=2 \
    adapter.target_modules=[$target] output_dir=lora-$name metrics.sinks=[jsonl] > log 2>&1 || fail "$name: sft: $(tail -3 log)"
  "$temper" export --model $name --adapter lora-$name/final --output at-once-$name --format gguf > log || fail "$name: export --adapter: $?"
  grep -q 'read back equal; log-probabilities of a probe differ from those before merging by at most [0-9.e-]*$' log || fail "$name: export says $(cat log)"
  "$temper" export --model $name --adapter lora-$name/final --output merged-$name/$name > log || fail "$name: export to hf: $?"
  "$temper" export --model merged-$name/$name --output in-two-$name --format gguf > log || fail "$name: export of the merged: $?"
  cmp at-once-$name/*.gguf in-two-$name/*.gguf || fail "$name: a merged adapter gives another file"
  "$temper" export --model $name --output plain-$name --format gguf > log || fail "$name: export: $?"
  cmp -s at-once-$name/*.gguf plain-$name/*.gguf && fail "$name: the adapter of $target is not in the file"
  for of in "$name --adapter lora-$name/final" "merged-$name/$name"; do
    "$temper" score --model $of --input scored.jsonl --output scores || fail "$name: score: $?"
    grep -o '"logprobs":\[[^]]*' scores | cut -d'[' -f2 | tr , '\n' > "$(basename "${of%% *}").scores.${#of}"
  done
  paste $name.scores.* | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++ } END { exit n > 20 ? 0 : 1 }' || fail "$name: the merged model is another one"
done

# refuse TEXT ARGUMENTS...: exit 2, one line that says TEXT, nothing written.
refuse() {
  local text=$1 status=0; shift
  "$temper" export --format gguf "$@" > out 2> err || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "expected $text: status $status: $(cat err)"
}
refuse 'holds a model or an adapter already' --model model --output plain
sed 's/"model_type"/"attention_bias": true, "model_type"/' config.json > biased.json
"$temper" init --config biased.json --output biased > /dev/null
refuse '`attention_bias`: a bias of attention' --model biased --output none
awk '{ print "{\"prompt_ids\": [1, 2], \"chosen_ids\": [3], \"rejected_ids\": [4]}" }' rows.jsonl > pairs.jsonl
"$temper" reward model.path=model data.train=pairs.jsonl train.max_steps=1 output_dir=reward metrics.sinks=[jsonl] > log 2>&1 || fail "reward: $(tail -3 log)"
refuse 'is a reward model' --model reward/final --output none
[ ! -e none ] || fail "a refused export leaves $(ls none)"
# One that fails while the file is written leaves no empty directories.
python3 - <<'P'
import json, shutil, struct
shutil.copytree("model", "large")
with open("large/model.safetensors", "r+b") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    begin = json.loads(f.read(size))["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    f.seek(8 + size + begin)
    f.write(struct.pack("<f", 1e6))
P
"$temper" export --format gguf --model large --output deep/none --dtype float16 > out 2> err && fail "1e6 as float16"
grep -q 'float16' err && [ ! -e deep ] || fail "a failed export leaves $(find deep): $(cat err)"
exit $bad
