#!/usr/bin/env bash
# Checkpoints that other tools quantized: kept as their files hold them or converted to float32, samples are scored as
# they were drawn; adapters train on them; what is exported is a plain model of the same numbers. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
models=$TEMPER_SOURCE_DIR/tests/golden/models
awk 'BEGIN { for (i = 0; i < 24; ++i) { printf "{\"input_ids\": ["; for (k = 0; k < 9 + i % 13; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 50; print "]}" } }' > rows.jsonl
awk 'BEGIN { for (i = 0; i < 3; ++i) printf "{\"tokens\": [%d, %d, %d]}\n", 5 + i, 40 + 3 * i, 9 }' > given.jsonl
run=(data.train=rows.jsonl train.max_steps=2 train.batch_size=4 optimizer.learning_rate=0.003 metrics.sinks=[jsonl])
logprobs() { grep -o '"logprobs":[^]]*' "$1"; }

for name in gptq gptq_dynamic gptq_moe gptq_phi3 awq compressed_pack compressed_int compressed_float fp8 bnb_fp4 bnb_int8; do
  model=$models/$name
  "$temper" check sft model.path="$model" adapter.method=lora "${run[@]}" output_dir=x > log 2>&1 || fail "$name: check: $(tail -2 log)"
  for storage in file float32; do
    "$temper" generate --model "$model" --storage $storage --input given.jsonl --output $storage.jsonl --max-new-tokens 8 2> log || fail "$name: generate: $(cat log)"
    "$temper" score --model "$model" --storage $storage --input $storage.jsonl --output $storage.score --max-batch 2 || fail "$name: score: $?"
    cmp <(logprobs $storage.jsonl) <(logprobs $storage.score) || fail "$name in $storage: scores are not what sampling recorded"
  done
  for method in lora qlora; do
    "$temper" sft model.path="$model" adapter.method=$method adapter.rank=4 "${run[@]}" output_dir=$name.$method > log 2>&1 || fail "$name: sft $method: $(tail -2 log)"
  done
  "$temper" sft model.path="$model" "${run[@]}" output_dir=x > log 2>&1
  [ $? = 2 ] && grep -q 'model.storage' log || fail "$name: full fine-tuning of quantized weights: $(tail -2 log)"
  "$temper" sft model.path="$model" model.storage=float32 "${run[@]}" output_dir=$name.full > log 2>&1 || fail "$name: full fine-tuning in float32: $(tail -2 log)"
  "$temper" export --model "$model" --output $name.plain > log 2>&1 || fail "$name: export: $(tail -2 log)"
  "$temper" export --model "$model" --adapter $name.lora/final --output $name.merged > log 2>&1 || fail "$name: export of an adapter: $(tail -2 log)"
  for out in $name.full/final $name.plain $name.merged; do
    grep -q quantization_config $out/config.json && fail "$out has a quantization_config"
  done
  "$temper" score --model $name.plain --input float32.jsonl --output plain.score || fail "$name: score of what was exported: $?"
  cmp plain.score float32.score || fail "$name: what was exported has other numbers"
done
exit $bad
