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

# refuse TEXT ARGUMENTS...: exit 2, one line that says TEXT, nothing written.
refuse() {
  local text=$1 status=0; shift
  "$temper" export --format gguf "$@" > out 2> err || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "expected $text: status $status: $(cat err)"
}
refuse 'holds a model already' --model model --output plain
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
