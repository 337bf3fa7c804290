#!/usr/bin/env bash
# Experts that their files hold in MXFP4, kept in four bits: sampling, scoring and training have the bits that their
# values in the model's dtype have, on several ranks too. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cat > config.json <<'J'
{"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6,
 "initializer_range": 0.2, "eos_token_id": 2}
J
"$temper" init --config config.json --seed 3 --output plain > /dev/null || fail "init: $?"
# mxfp4 FROM TO: any codes and scales in place of the experts.
cat > mxfp4.py <<'P'
import json, os, random, shutil, sys
source, target = sys.argv[1:]
shutil.copytree(source, target)
path = target + "/model.safetensors"
data = open(path, "rb").read()
size = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + size])
random.seed(5)
out, parts, at = {}, [], 0
def add(name, dtype, shape, values):
    global at
    out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(values)]}
    parts.append(values)
    at += len(values)
for name, tensor in header.items():
    if name == "__metadata__": continue
    begin, end = tensor["data_offsets"]
    if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
        experts, inputs, outputs = tensor["shape"]
        blocks = experts * outputs * inputs // 32
        add(name + "_blocks", "U8", [experts, outputs, inputs // 32, 16], random.randbytes(16 * blocks))
        add(name + "_scales", "U8", [experts, outputs, inputs // 32], bytes(random.choices(range(121, 125), k=blocks)))
    else:
        add(name, tensor["dtype"], tensor["shape"], data[8 + size + begin:8 + size + end])
text = json.dumps(out).encode()
open(path, "wb").write(len(text).to_bytes(8, "little") + text + b"".join(parts))
config = json.load(open(target + "/config.json"))
config["quantization_config"] = {"quant_method": "mxfp4"}
json.dump(config, open(target + "/config.json", "w"))
P
python3 mxfp4.py plain model || fail "no model"
awk 'BEGIN { for (i = 0; i < 24; ++i) { printf "{\"input_ids\": ["; for (k = 0; k < 9 + i % 13; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 50; print "]}" } }' > rows.jsonl
awk 'BEGIN { for (i = 0; i < 6; ++i) printf "{\"tokens\": [%d, %d, %d]}\n", 5 + i, 40 + 3 * i, 9 }' > given.jsonl
sed 's/tokens/prompt_ids/' given.jsonl > prompts.jsonl
run=(model.path=model adapter.method=lora adapter.rank=4 train.max_steps=3 train.batch_size=4 optimizer.learning_rate=0.003 metrics.sinks=[jsonl])
# The tensors of two adapters; what their files say of the base differs.
same_adapter() {
  python3 - "$1/final/adapter_model.safetensors" "$2/final/adapter_model.safetensors" <<'P' || fail "$2 is another adapter than $1"
import json, sys
def tensors(path):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for name, t in header.items()}
a, b = map(tensors, sys.argv[1:])
sys.exit(not a or a != b)
P
}

for dtype in float32 bfloat16; do
  "$temper" sft "${run[@]}" data.train=rows.jsonl model.dtype=$dtype output_dir=kept-$dtype model.storage=mxfp4 > log 2>&1 || fail "sft on mxfp4: $(tail -3 log)"
  "$temper" sft "${run[@]}" data.train=rows.jsonl model.dtype=$dtype output_dir=read-$dtype model.storage=$dtype > log 2>&1 || fail "sft on $dtype: $(tail -3 log)"
  same_adapter read-$dtype kept-$dtype
  for storage in mxfp4 $dtype; do
    flags=(--model model --adapter kept-$dtype/final --dtype $dtype --storage $storage)
    "$temper" generate "${flags[@]}" --input given.jsonl --output $dtype.$storage.jsonl --max-new-tokens 9 --num-samples 2 2> log || fail "generate: $(cat log)"
    grep -q 'trained on' log && fail "a warning of the same weights: $(cat log)"
    "$temper" score "${flags[@]}" --input $dtype.$storage.jsonl --output $dtype.$storage.score --max-batch 3 || fail "score: $?"
    cmp <(grep -o '"logprobs":[^]]*' $dtype.$storage.jsonl) <(grep -o '"logprobs":[^]]*' $dtype.$storage.score) || fail "$storage: scores are not what sampling recorded"
  done
  cmp $dtype.mxfp4.jsonl $dtype.$dtype.jsonl || fail "in mxfp4 other samples than in $dtype"
  cmp $dtype.mxfp4.score $dtype.$dtype.score || fail "in mxfp4 other scores than in $dtype"
done
cmp -s float32.mxfp4.score bfloat16.mxfp4.score && fail "the dtype of the other layers changes nothing"
# Under qlora the same; and where ranks share the weights out or have an expert each, to the losses' last digit.
"$temper" sft "${run[@]}" data.train=rows.jsonl adapter.method=qlora output_dir=qlora model.storage=mxfp4 > log 2>&1 || fail "qlora on mxfp4: $(tail -3 log)"
same_adapter read-float32 qlora
for axis in expert fsdp; do
  "$temper" sft --nproc 2 "${run[@]}" data.train=rows.jsonl output_dir=$axis model.storage=mxfp4 mesh.$axis=2 > log 2>&1 || fail "sft on mxfp4 with mesh.$axis: $(tail -3 log)"
  "$temper" sft --nproc 2 "${run[@]}" data.train=rows.jsonl output_dir=$axis-read mesh.$axis=2 > log 2>&1 || fail "sft with mesh.$axis: $(tail -3 log)"
  same_adapter $axis-read $axis
done
same_adapter read-float32 expert
# The sampler is the trainer.
"$temper" grpo "${run[@]}" data.train=prompts.jsonl output_dir=grpo model.storage=mxfp4 rl.group_size=3 rl.prompts_per_rollout=2 rollout.max_new_tokens=7 \
  'rewards=[{name: length}]' > log 2>&1 || fail "grpo over mxfp4: $(tail -3 log)"
zero_diffs grpo/metrics.jsonl
# What is merged into are the values, whichever way they are kept.
for storage in mxfp4 float32; do
  "$temper" export --model model --adapter kept-float32/final --storage $storage --output merged-$storage > log || fail "export: $(cat log)"
  [ "$(wc -l < log)" = 1 ] || fail "export of an adapter on the files' own numbers: $(cat log)"
done
cmp merged-mxfp4/model.safetensors merged-float32/model.safetensors || fail "merged into other values"
# The next start finds what was packed; `check` plans for less memory.
score() { TEMPER_CACHE_DIR=$dir/cache "$temper" score --model model --adapter kept-float32/final --storage mxfp4 --input float32.mxfp4.jsonl --output "$1" || fail "score with a cache: $?"; }
score first && file=$(find cache -name '*.safetensors') && stat -c %i "$file" > before && score second
[ "$(stat -c %i "$file")" = "$(cat before)" ] && cmp first second && cmp first float32.mxfp4.score || fail "the cache"
weights() { "$temper" check sft "${run[@]}" data.train=rows.jsonl output_dir=x train.memory_limit=1MB "$@" 2>&1 | tee log | grep -o 'weights [0-9.]* [kMG]*B' | head -1; }
[ -n "$(weights)" ] && [ "$(weights model.storage=mxfp4)" = "$(weights)" ] && [ "$(weights model.storage=float32)" != "$(weights)" ] || fail "check: $(cat log)"

expect() {  # STATUS MESSAGE ARGUMENT...
  "$temper" "${@:3}" > out.log 2>&1
  local status=$?
  [ $status = "$1" ] && grep -q -- "$2" out.log || fail "${*:3}: status $status, $(tail -2 out.log)"
}
expect 2 'plain: holds no weights in MXFP4.*choose nf4, int8 or bfloat16' score --model plain --storage mxfp4 --input given.jsonl --output x
expect 2 'plain: holds no weights in MXFP4' export --model plain --storage mxfp4 --output x
expect 2 'model.storage: .*plain holds none in MXFP4; choose nf4' sft "${run[@]}" model.path=plain data.train=rows.jsonl output_dir=x model.storage=mxfp4
expect 2 'model.storage: .*plain holds none in MXFP4; choose nf4' check sft "${run[@]}" model.path=plain data.train=rows.jsonl output_dir=x model.storage=mxfp4
expect 2 'model.storage: .*plain holds none quantized; choose nf4' sft "${run[@]}" model.path=plain data.train=rows.jsonl output_dir=x adapter.method=qlora model.storage=file
expect 2 'model.path: .*its weights are quantized' sft "${run[@]}" data.train=rows.jsonl output_dir=x adapter.method=none
expect 2 'mesh.tensor' sft --nproc 2 "${run[@]}" data.train=rows.jsonl output_dir=x model.storage=mxfp4 mesh.tensor=2
# A scale of 255 is no number.
cp -r model damaged && python3 - <<'P'
path = "damaged/model.safetensors"
data = bytearray(open(path, "rb").read())
size = int.from_bytes(data[:8], "little")
import json
begin = json.loads(data[8:8 + size])["model.layers.1.mlp.experts.down_proj_scales"]["data_offsets"][0]
data[8 + size + begin] = 255
open(path, "wb").write(data)
P
expect 2 'damaged: `model.layers.1.mlp.experts.0.down_proj.weight`: .*not all finite' score --model damaged --storage mxfp4 --input given.jsonl --output x
exit $bad
