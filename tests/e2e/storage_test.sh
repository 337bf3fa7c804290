#!/usr/bin/env bash
# Frozen weights in int8 and nf4 from the command line: training an adapter over them, sampling and scoring with the
# same base to the bit, merging, and what is refused. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
odd_model
awk 'BEGIN { for (i = 0; i < 24; ++i) { printf "{\"input_ids\": ["; for (k = 0; k < 9 + i % 13; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; print "]}" } }' > rows.jsonl
awk 'BEGIN { for (i = 0; i < 12; ++i) printf "{\"prompt_ids\": [%d, %d, %d]}\n", 5 + i, 40 + 3 * i, 9 }' > prompts.jsonl
sed 's/prompt_ids/tokens/' prompts.jsonl > given.jsonl
run=(model.path=model adapter.rank=4 train.max_steps=4 train.batch_size=4 optimizer.learning_rate=0.003 metrics.sinks=[jsonl])

# Training: nf4 under qlora, int8 under lora; two threads and recomputation change no bit.
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=qlora adapter.method=qlora || fail "qlora: $?"
OMP_NUM_THREADS=1 "$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=again adapter.method=qlora train.recompute=blocks || fail "qlora again: $?"
cmp qlora/final/adapter_model.safetensors again/final/adapter_model.safetensors || fail "threads or recomputation changed an nf4 run"
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=int8 adapter.method=lora model.storage=int8 || fail "int8: $?"
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=lora adapter.method=lora || fail "lora: $?"
[ "$(value int8/metrics.jsonl loss)" = "$(value lora/metrics.jsonl loss)" ] && fail "int8 changed nothing"

# A run that goes on from its checkpoint ends with the same bits.
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=halves adapter.method=qlora train.max_steps=2 > /dev/null || fail "half a run: $?"
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=halves adapter.method=qlora > /dev/null || fail "the other half: $?"

# The sampler is the trainer, and scoring the same base gives what sampling recorded.
"$temper" grpo "${run[@]}" data.train=prompts.jsonl output_dir=grpo adapter.method=qlora rl.group_size=3 rl.prompts_per_rollout=2 rollout.max_new_tokens=7 \
  'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo over nf4: $(cat grpo.log)"
[ "$(value grpo/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "over nf4 the sampler is not the trainer"
fast=(model.dtype=bfloat16 model.arithmetic=fast)
"$temper" grpo "${run[@]}" "${fast[@]}" data.train=prompts.jsonl output_dir=fast adapter.method=lora rl.group_size=3 rl.prompts_per_rollout=2 rollout.max_new_tokens=7 \
  'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo in fast arithmetic: $(cat grpo.log)"
[ "$(value fast/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "in fast arithmetic the sampler is not the trainer"
amx=(model.dtype=bfloat16 model.arithmetic=amx)
for method in none lora qlora; do
  "$temper" grpo "${run[@]}" "${amx[@]}" data.train=prompts.jsonl output_dir=amx.$method adapter.method=$method rl.group_size=3 rl.prompts_per_rollout=2 \
    rollout.max_new_tokens=7 'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo, $method, in amx arithmetic: $(cat grpo.log)"
  [ "$(value amx.$method/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "in amx arithmetic, $method, the sampler is not the trainer"
done
for storage in int8 nf4; do
  integer=(adapter.method=lora model.storage=$storage model.arithmetic=integer optimizer.schedule=constant)
  "$temper" grpo "${run[@]}" "${integer[@]}" data.train=prompts.jsonl output_dir=integer.$storage rl.group_size=3 rl.prompts_per_rollout=2 \
    rollout.max_new_tokens=7 'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo over $storage in integers: $(cat grpo.log)"
  [ "$(value integer.$storage/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "in integers over $storage the sampler is not the trainer"
  # Another number of threads, another SIMD target and a checkpoint in between change no bit.
  "$temper" sft "${run[@]}" "${integer[@]}" data.train=rows.jsonl output_dir=whole.$storage > /dev/null || fail "sft over $storage in integers: $?"
  OMP_NUM_THREADS=1 TEMPER_SIMD=$("$temper" doctor | sed -n 's/^simd.*TEMPER_SIMD: \([a-z0-9]*\).*/\1/p') "$temper" sft "${run[@]}" "${integer[@]}" data.train=rows.jsonl \
    output_dir=parts.$storage train.max_steps=2 > /dev/null || fail "half a run over $storage in integers: $?"
  "$temper" sft "${run[@]}" "${integer[@]}" data.train=rows.jsonl output_dir=parts.$storage > /dev/null || fail "the other half over $storage in integers: $?"
  cmp {whole,parts}.$storage/final/adapter_model.safetensors || fail "threads, vectors or a checkpoint changed a run in integers over $storage"
done
# Also where it samples ahead from weights of its own: all that train, which such a snapshot copies.
"$temper" grpo "${run[@]}" "${fast[@]}" data.train=prompts.jsonl output_dir=ahead rl.max_staleness=1 rl.group_size=3 rl.prompts_per_rollout=2 rollout.max_new_tokens=7 \
  'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo in fast arithmetic, ahead: $(cat grpo.log)"
[ "$(value ahead/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "in fast arithmetic the sampler that runs ahead is not the trainer: $(value ahead/metrics.jsonl sampler_trainer_max_abs_diff)"
for storage in nf4 int8 bfloat16; do
  "$temper" generate --model model --adapter qlora/final --storage $storage --input given.jsonl --output $storage.jsonl --max-new-tokens 9 --num-samples 2 || fail "generate $storage: $?"
  "$temper" score --model model --adapter qlora/final --storage $storage --input $storage.jsonl --output $storage.score --max-batch 3 || fail "score $storage: $?"
  cmp <(grep -o '"logprobs":[^]]*' $storage.jsonl) <(grep -o '"logprobs":[^]]*' $storage.score) || fail "$storage: scores are not what sampling recorded"
done
"$temper" generate --model model --storage nf4 --arithmetic amx --input given.jsonl --output amx.jsonl --max-new-tokens 9 --num-samples 2 || fail "generate, amx: $?"
"$temper" score --model model --storage nf4 --arithmetic amx --input amx.jsonl --output amx.score --max-batch 3 || fail "score, amx: $?"
cmp <(grep -o '"logprobs":[^]]*' amx.jsonl) <(grep -o '"logprobs":[^]]*' amx.score) || fail "amx: scores are not what sampling recorded"
for storage in int8 nf4; do
  "$temper" generate --model model --storage $storage --arithmetic integer --input given.jsonl --output integer.jsonl --max-new-tokens 9 --num-samples 2 || fail "generate, integer: $?"
  "$temper" score --model model --storage $storage --arithmetic integer --input integer.jsonl --output integer.score --max-batch 3 || fail "score, integer: $?"
  cmp <(grep -o '"logprobs":[^]]*' integer.jsonl) <(grep -o '"logprobs":[^]]*' integer.score) || fail "integer over $storage: scores are not what sampling recorded"
  "$temper" score --model model --storage $storage --input integer.jsonl --output exact.score || fail "score: $?"
  cmp -s integer.score exact.score && fail "--arithmetic integer changed nothing over $storage"
done
cmp -s nf4.score int8.score && fail "nf4 and int8 are the same"

# Keys and values in 16 bits: the trainer rounds as the sampler's cache does, its reference model too; so does scoring.
for dtype in float16 bfloat16; do
  "$temper" grpo "${run[@]}" data.train=prompts.jsonl output_dir=cache.$dtype rollout.cache_dtype=$dtype rl.beta=0.1 rl.group_size=3 rl.prompts_per_rollout=2 \
    rollout.max_new_tokens=7 'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo with a cache in $dtype: $(cat grpo.log)"
  [ "$(value cache.$dtype/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "with a cache in $dtype the sampler is not the trainer"
  [ "$(value cache.$dtype/metrics.jsonl kl | head -1)" = 0 ] || fail "with a cache in $dtype the reference is not the policy before its first step: $(value cache.$dtype/metrics.jsonl kl)"
  "$temper" generate --model model --cache-dtype $dtype --input given.jsonl --output $dtype.jsonl --max-new-tokens 9 --num-samples 2 || fail "generate --cache-dtype $dtype: $?"
  "$temper" score --model model --cache-dtype $dtype --input $dtype.jsonl --output $dtype.score --max-batch 3 || fail "score --cache-dtype $dtype: $?"
  cmp <(grep -o '"logprobs":[^]]*' $dtype.jsonl) <(grep -o '"logprobs":[^]]*' $dtype.score) || fail "cache in $dtype: scores are not what sampling recorded"
  "$temper" score --model model --input $dtype.jsonl --output plain.score || fail "score: $?"
  cmp -s $dtype.score plain.score && fail "--cache-dtype $dtype changed nothing"
done
cmp -s float16.score bfloat16.score && fail "float16 and bfloat16 caches are the same"
# Also where it samples ahead from weights of its own.
"$temper" grpo "${run[@]}" data.train=prompts.jsonl output_dir=cache.ahead rollout.cache_dtype=float16 rl.max_staleness=1 rl.group_size=3 rl.prompts_per_rollout=2 \
  rollout.max_new_tokens=7 'rewards=[{name: length}]' > grpo.log 2>&1 || fail "grpo with a cache in float16, ahead: $(cat grpo.log)"
[ "$(value cache.ahead/metrics.jsonl sampler_trainer_max_abs_diff | sort -u)" = 0 ] || fail "with a cache in float16 the sampler that runs ahead is not the trainer"

# Merged into the weights as quantized, the model says what the run's base and adapter say; into the original ones, not.
"$temper" export --model model --adapter qlora/final --storage nf4 --output merged > export.log || fail "export --storage nf4: $?"
grep -q 'from those before merging and writing by at most [0-9.e-]*$' export.log && grep -q 'of a probe, against the original weights: at most 0.[0-9]* apart$' export.log || fail "export --storage does not say the differences: $(cat export.log)"
"$temper" export --model model --adapter qlora/final --output original > export.log || fail "export: $?"
grep -q 'against training, on nf4 weights: at most 0.[0-9]* apart; --storage nf4' export.log || fail "export does not say the difference: $(cat export.log)"
"$temper" export --model model --adapter int8/final --output original.gguf --format gguf > export.log 2> /dev/null || fail "export to gguf: $?"
grep -q 'against training, on int8 weights' export.log || fail "export to gguf does not say the difference: $(cat export.log)"
"$temper" export --model model --adapter lora/final --output plain > export.log && [ "$(wc -l < export.log)" = 1 ] || fail "export of a float32 adapter: $(cat export.log)"
# Whoever uses an adapter on other weights than it was trained on is told.
"$temper" score --model model --adapter qlora/final --input given.jsonl --output x 2>&1 | grep -q 'was trained on nf4 weights, and these are not: --storage nf4' || fail "score does not say that the base is another"
"$temper" score --model model --adapter qlora/final --storage nf4 --input given.jsonl --output x 2>&1 | grep -q 'trained on' && fail "score warns of the right base"
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=other adapter.path=qlora/final train.max_steps=1 2>&1 | grep -q 'adapter.path: qlora/final was trained on nf4 weights' || fail "sft does not say that the base is another"
cmp -s merged/model.safetensors original/model.safetensors && fail "--storage nf4 merged into the original weights"

expect() {  # STATUS MESSAGE ARGUMENT...
  "$temper" "${@:3}" > out.log 2>&1
  local status=$?
  [ $status = "$1" ] && grep -q -- "$2" out.log || fail "${*:3}: status $status, $(tail -2 out.log)"
}
expect 2 'model.storage: .*weights that train are kept in float32' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.storage=nf4
expect 2 'model.storage: .*qlora keeps the weights in nf4' sft "${run[@]}" data.train=rows.jsonl output_dir=x adapter.method=qlora model.storage=int8
expect 2 'model.storage: found int4, expected float32 | bfloat16 | int8 | nf4 | mxfp4 | file' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.storage=int4
expect 2 'model.arithmetic: .*bfloat16 weights' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.arithmetic=fast
expect 2 '--arithmetic fast: expected --dtype or --storage bfloat16' score --model model --input given.jsonl --output x --arithmetic fast
expect 2 'model.arithmetic: .*bfloat16 weights' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.arithmetic=amx
expect 2 '--arithmetic amx: expected --dtype or --storage bfloat16 with it, or quantized' score --model model --input given.jsonl --output x --arithmetic amx
expect 2 'model.arithmetic: integer is for frozen quantized weights' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.arithmetic=integer
expect 2 'model.arithmetic: integer is for frozen quantized weights' check sft "${run[@]}" data.train=rows.jsonl output_dir=x model.arithmetic=integer adapter.method=lora model.storage=bfloat16
expect 2 '--arithmetic integer: expected quantized weights with it' score --model model --input given.jsonl --output x --arithmetic integer --dtype bfloat16
expect 2 'model.arithmetic: found bf16, expected exact | fast | amx | integer' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.arithmetic=bf16
expect 2 '--cache-dtype: found int8, expected float32 | float16 | bfloat16' generate --model model --input given.jsonl --output x --cache-dtype int8
expect 2 'rollout.cache_dtype: found fp8, expected float32 | float16 | bfloat16' grpo "${run[@]}" data.train=prompts.jsonl output_dir=x rollout.cache_dtype=fp8 'rewards=[{name: length}]'
expect 2 '--storage' generate --model model --input given.jsonl --output x --storage int4
cp -r model quantized && sed -i '0,/{/s/{/{"quantization_config": {"quant_method": "hqq"},/' quantized/config.json
expect 2 'quantized/config.json: weights quantized by hqq are not read' generate --model quantized --input given.jsonl --output x
expect 2 'quantized/config.json: weights quantized by hqq are not read' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.path=quantized
expect 2 'weights quantized by hqq are not read' check sft "${run[@]}" data.train=rows.jsonl output_dir=x model.path=quantized --mesh devices=2,memory=1GB,bandwidth=1GB/s,flops=1TFLOPS
cp -r model older && python3 -c '
import json
path = "older/model.safetensors"
data = open(path, "rb").read()
size = int.from_bytes(data[:8], "little")
header = data[8:8 + size].replace(b"q_proj.weight\"", b"q_proj.qweight\"")
open(path, "wb").write(len(header).to_bytes(8, "little") + header + data[8 + size:])' && expect 2 'older: .*q_proj.qweight. holds codes of GPTQ or AWQ' generate --model older --input given.jsonl --output x
base=$TEMPER_SOURCE_DIR/tests/golden/models/qwen3_nf4
expect 2 'model.path: .*its weights are quantized.*model.storage: float32 or bfloat16' sft "${run[@]}" data.train=rows.jsonl output_dir=x model.path="$base"

# A base that its files hold in nf4 stays so under lora and qlora, with the losses of the numbers that it stands for,
# which full fine-tuning trains.
awk 'BEGIN { for (i = 0; i < 24; ++i) { printf "{\"input_ids\": ["; for (k = 0; k < 9 + i % 13; ++k) printf "%s%d", k ? ", " : "", (7 * i + 3 * k) % 61; print "]}" } }' > small.jsonl
on_base() {  # OUTPUT_DIR KEY=VALUE...
  "$temper" sft "${run[@]}" data.train=small.jsonl model.path="$base" output_dir="$1" "${@:2}" > log 2>&1 || fail "sft on nf4, ${*:2}: $(tail -3 log)"
}
on_base base.kept adapter.method=lora
on_base base.read adapter.method=lora model.storage=float32
on_base base.qlora adapter.method=qlora
on_base base.full adapter.method=none model.storage=float32
[ "$(value base.kept/metrics.jsonl loss | wc -l)" = 4 ] || fail "no losses on a base in nf4"
cmp <(value base.kept/metrics.jsonl loss) <(value base.read/metrics.jsonl loss) || fail "a base in nf4 has other losses than its numbers"
cmp base.kept/final/adapter_model.safetensors base.qlora/final/adapter_model.safetensors || fail "lora and qlora on a base in nf4 differ"
echo '{"tokens": [1, 2, 3]}' > one.jsonl
planned() { "$temper" check sft "${run[@]}" data.train=small.jsonl model.path="$base" output_dir=unmade adapter.method=lora "$@" 2> /dev/null | sed -n 's/^  weights *//p'; }
[ -n "$(planned)" ] && [ "$(planned)" = "$(planned model.storage=nf4)" ] && [ "$(planned)" != "$(planned model.storage=float32)" ] ||
  fail "check plans a base in nf4 as $(planned), in float32 $(planned model.storage=float32)"
"$temper" score --model "$base" --adapter base.kept/final --input one.jsonl --output x > log 2>&1 || fail "score on nf4: $(cat log)"
grep -q 'trained on' log && fail "score warns of the right base: $(cat log)"

# The cache belongs to the weights, whatever their time of writing says, and the next ones take its place.
for seed in 1 9; do
  rm -rf again && "$temper" init --config config.json --seed $seed --output again > /dev/null
  find again -exec touch -d @1 {} +
  TEMPER_CACHE_DIR=$dir/cache "$temper" score --model again --storage nf4 --input given.jsonl --output cached.$seed || fail "score with a cache: $?"
  "$temper" score --model again --storage nf4 --input given.jsonl --output plain.$seed || fail "score without a cache: $?"
  cmp cached.$seed plain.$seed || fail "the cache holds another model"
  [ "$(find cache -name '*.safetensors' | wc -l)" = 1 ] || fail "the cache keeps old files: $(find cache)"
done
# It is used, unless a byte of it changed; what belonged to a model that is gone goes when another is kept.
file=$(find cache -name '*.safetensors')
stat -c %i "$file" > before
score() { TEMPER_CACHE_DIR=$dir/cache "$temper" score --model "$1" --storage nf4 --input given.jsonl --output "$2" || fail "score with a cache: $?"; }
score again used && [ "$(stat -c %i "$file")" = "$(cat before)" ] || fail "the cache was not used"
python3 -c '
import sys
path = sys.argv[1]
data = bytearray(open(path, "rb").read())
data[len(data) * 2 // 3] ^= 5
open(path, "wb").write(data)' "$file"
score again damaged && cmp damaged plain.9 || fail "a damaged cache was used"
[ "$(stat -c %i "$file")" != "$(cat before)" ] || fail "the damaged cache was not made anew"
score again repaired && cmp repaired plain.9 || fail "the cache that was made anew"
mv again elsewhere && score model moved && [ "$(find cache -name '*.safetensors' | wc -l)" = 1 ] || fail "the cache keeps models that are gone: $(find cache)"
"$temper" doctor > doctor.log && grep -q '^integer .* (model.arithmetic), beside exact: int8 [0-9.]* times as fast for one row, .*; nf4 ' doctor.log || fail "doctor on products in integers: $(cat doctor.log)"
"$temper" check sft "${run[@]}" data.train=rows.jsonl output_dir=unmade adapter.method=qlora > check.log && grep -q 'arithmetic .*NF4 weights are exact; ' check.log || fail "check on products: $(cat check.log)"
"$temper" check sft "${run[@]}" data.train=rows.jsonl output_dir=unmade adapter.method=qlora model.arithmetic=integer > check.log && grep -q 'arithmetic .*NF4 weights are in integers: here ' check.log || fail "check on products in integers: $(cat check.log)"
TEMPER_CACHE_DIR=$dir/cache "$temper" doctor | grep -q "weight cache .*/cache/weights: " || fail "doctor does not name the cache"

# Reference log-probabilities that were computed before are of one arithmetic.
awk 'BEGIN { for (i = 0; i < 12; ++i) printf "{\"prompt_ids\": [%d, 6, 7], \"chosen_ids\": [%d, 9, 2], \"rejected_ids\": [%d, 2]}\n", 5 + i, 20 + i, 40 + i }' > pairs.jsonl
dpo() { "$temper" dpo "${run[@]}" adapter.method=lora model.dtype=bfloat16 preference.reference=precomputed resume=never data.train=pairs.jsonl "$@" > /dev/null 2>&1 || fail "dpo $*: $?"; }
dpo output_dir=dpo && dpo output_dir=dpo model.arithmetic=fast && dpo output_dir=dpo-fast model.arithmetic=fast
[ "$(value dpo/metrics.jsonl loss)" = "$(value dpo-fast/metrics.jsonl loss)" ] || fail "reference log-probabilities of another arithmetic were used"

# What a checkpoint has trained is not dropped without a word.
"$temper" sft "${run[@]}" data.train=rows.jsonl output_dir=dora adapter.method=lora adapter.use_dora=true train.max_steps=2 > /dev/null || fail "dora: $?"
expect 2 'what was trained would be lost' sft "${run[@]}" data.train=rows.jsonl output_dir=dora adapter.method=lora resume=dora/checkpoints/step-2
# Adapters whose files alone do not say what they compute.
cp -r qlora/final pissa && sed -i 's/"init_lora_weights": true/"init_lora_weights": "pissa"/' pissa/adapter_config.json
expect 2 'pissa/adapter_config.json: `init_lora_weights`: found "pissa"' score --model model --adapter pissa --input given.jsonl --output x
exit $bad
