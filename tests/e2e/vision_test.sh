#!/usr/bin/env bash
# Vision towers that train (model.vision): every family, what final/ holds, kills, threads, ranks, adapters, wrong
# settings. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
golden=$TEMPER_SOURCE_DIR/tests/golden
cp "$golden/images/files/cmyk.jpg" picture0 && cp "$golden/images/files/palette.png" picture1

# model_of FAMILY SETTINGS [PROCESSOR]: the tiny model with preprocessor_config.json and processor_config.json, and rows
# in FAMILY.jsonl, of as many placeholders as the program says that the picture has.
model_of() {
  cp -r "$golden/vision/$1" "$1" && rm -f "$1"/expected.*
  [ "$2" ] && echo "$2" > "$1/preprocessor_config.json"
  [ "${3:-}" ] && echo "$3" > "$1/processor_config.json"
  echo '{"image_token": "<img>", "boi_token": "<boi>", "eoi_token": "<eoi>"}' > "$1/tokenizer_config.json"
  : > "$1.jsonl"
  for i in 0 1; do
    echo "{\"input_ids\": [1, 2, 3, 4], \"images\": [\"picture$i\"]}" > one.jsonl
    local count
    count=$("$temper" sft model.path="$1" data.train=one.jsonl train.max_steps=1 output_dir=none 2>&1 | grep -o 'expected [0-9]*' | head -1 | grep -o '[0-9]*')
    python3 - "$i" "${count:-0}" >> "$1.jsonl" <<'P'
import json, sys
i, count = map(int, sys.argv[1:])
for k in range(4):
    print(json.dumps({"input_ids": [1, 2 + k] + [7] * count + [13 + k, 20 + i, 5], "images": [f"picture{i}"]}))
P
  done
}
qwen() { echo "{\"image_processor_type\": \"Qwen2VLImageProcessorFast\", \"patch_size\": 4, \"merge_size\": 2, \"temporal_patch_size\": 2, \"size\": {\"shortest_edge\": 64, \"longest_edge\": 1024}}"; }
model_of qwen3_vl "$(qwen)"
model_of qwen3_5 "$(qwen)"
model_of qwen3_5_moe "$(qwen)"
model_of qwen2_5_vl "$(qwen)"
model_of gemma3 '{"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 24, "width": 24}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}' \
  '{"processor_class": "Gemma3Processor", "image_seq_length": 9}'
model_of gemma4 '' '{"processor_class": "Gemma4Processor", "image_processor": {"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70}}'
python3 - <<'P'  # the fewest tokens that its processor makes are of more patches a side than the tiny model has places for
import json, struct
path = "gemma4/model.safetensors"
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
out, blob = {}, b""
for name, t in header.items():
    if name == "__metadata__": continue
    values = body[slice(*t["data_offsets"])]
    if name.endswith("position_embedding_table"):
        half = len(values) // 2
        values, t["shape"][1] = values[:half] * 3 + values[half:] * 3, 3 * t["shape"][1]
    out[name] = dict(t, data_offsets=[len(blob), len(blob) + len(values)])
    blob += values
head = json.dumps(out).encode()
head += b" " * (-len(head) % 8)
open(path, "wb").write(struct.pack("<Q", len(head)) + head + blob)
config = json.load(open("gemma4/config.json"))
config["vision_config"]["position_embedding_size"] *= 3
json.dump(config, open("gemma4/config.json", "w"))
P
model_of smolvlm '{"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 24}}' \
  '{"processor_class": "SmolVLMProcessor", "image_seq_len": 4}'
model_of lfm2_vl '{"image_processor_type": "Lfm2VlImageProcessorFast", "encoder_patch_size": 4, "downsample_factor": 2, "tile_size": 16, "min_image_tokens": 1, "max_image_tokens": 16, "max_num_patches": 64, "min_tiles": 2, "max_tiles": 4, "do_image_splitting": true, "use_thumbnail": true}'

for i in 1 2 3 4; do echo "{\"input_ids\": [1, 2, $i, 3, 4]}"; done > rows.jsonl

# sft FAMILY OUT ARGUMENTS.
sft() {
  local family=$1 out=$2
  shift 2
  "$temper" sft model.path="$family" data.train="$family.jsonl" train.batch_size=4 optimizer.learning_rate=1e-2 train.max_steps=4 \
    data.shuffle=false metrics.sinks=[jsonl] output_dir="$out" "$@" > "$out.log" 2>&1 || fail "$out: $(tail -2 "$out.log")"
}
weights() { sha256sum < "$1/final/model.safetensors"; }
same() { [ "$(weights "$1")" = "$(weights "$2")" ] || fail "$1 and $2 have other weights"; }
# moved BEFORE AFTER: parts of the model with tensors that moved, and of how many names and shapes are others.
moved() {
  python3 - "$1" "$2/final" <<'P'
import json, struct, sys
def read(path):
    f = open(path + "/model.safetensors", "rb")
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
    out = {}
    for name, t in header.items():
        if name == "__metadata__": continue
        f.seek(8 + n + t["data_offsets"][0])
        out[name] = (t["shape"], f.read(t["data_offsets"][1] - t["data_offsets"][0]))
    return out
a, b = map(read, sys.argv[1:])
if {n: t[0] for n, t in a.items()} != {n: t[0] for n, t in b.items()}: print("names")
projector = ("merger", "multi_modal_projector", "connector", "embed_vision")
tower = ("visual.", "vision_tower.", "vision_model.")
parts = set()
for name in a:
    if a[name] == b.get(name): continue
    parts.add("projector" if any(p in name for p in projector) else "tower" if any(p in name for p in tower) else "text")
print(" ".join(sorted(parts)))
P
}

for family in qwen3_vl qwen3_5 qwen3_5_moe qwen2_5_vl gemma3 gemma4 smolvlm lfm2_vl; do
  sft $family $family.train model.vision=train
  sft $family $family.projector model.vision=projector
  [ "$(moved $family $family.train)" = "projector text tower" ] || fail "$family train: $(moved $family $family.train)"
  [ "$(moved $family $family.projector)" = "projector text" ] || fail "$family projector: $(moved $family $family.projector)"
done
sft qwen3_vl frozen
[ "$(moved qwen3_vl frozen)" = text ] || fail "frozen: $(moved qwen3_vl frozen)"

# The same bits with other threads, with recomputed blocks and after a stop; other passes give the same up to rounding.
OMP_NUM_THREADS=3 sft qwen3_vl threads model.vision=train
same qwen3_vl.train threads
sft qwen3_vl blocks model.vision=train train.recompute=blocks
same qwen3_vl.train blocks
sft qwen3_vl stopped model.vision=train train.max_steps=2 optimizer.schedule=constant
sft qwen3_vl stopped model.vision=train optimizer.schedule=constant
sft qwen3_vl whole model.vision=train optimizer.schedule=constant
same stopped whole
python3 "$(dirname "$0")/same_losses.py" qwen3_vl.train/metrics.jsonl <(sft qwen3_vl passes model.vision=train train.micro_batch_tokens=40; cat passes/metrics.jsonl) \
  || fail "other passes, other losses"
for axis in data fsdp; do
  "$temper" sft --nproc 2 model.path=qwen3_vl data.train=qwen3_vl.jsonl train.batch_size=4 optimizer.learning_rate=1e-2 train.max_steps=4 \
    data.shuffle=false metrics.sinks=[jsonl] model.vision=train mesh.$axis=2 output_dir=$axis > $axis.log 2>&1 || fail "$axis: $(tail -2 $axis.log)"
  python3 "$(dirname "$0")/same_losses.py" qwen3_vl.train/metrics.jsonl $axis/metrics.jsonl || fail "$axis: other losses"
done

# An adapter on layers of the tower goes on, is read back and merged.
lora='adapter.method=lora adapter.rank=2 model.vision=train optimizer.schedule=constant'
targets='adapter.target_modules=[q_proj, v_proj, down_proj, attn.qkv, merger.linear_fc1]'
sft qwen3_vl lora $lora "$targets"
sft qwen3_vl half $lora "$targets" train.max_steps=2
sft qwen3_vl half $lora "$targets"
cmp -s lora/final/adapter_model.safetensors half/final/adapter_model.safetensors || fail "a resumed adapter differs"
grep -q '"model.visual.merger.linear_fc1"' lora/final/adapter_config.json || fail "target_modules: $(cat lora/final/adapter_config.json)"
"$temper" export --model qwen3_vl --adapter lora/final --output merged > export.log 2>&1 || fail "export: $(cat export.log)"
cp qwen3_vl/preprocessor_config.json qwen3_vl/tokenizer_config.json merged 2> /dev/null
cp qwen3_vl.jsonl merged.jsonl
sft qwen3_vl adapted $lora adapter.path=lora/final train.max_steps=1
sft merged merged.run model.vision=train train.max_steps=1
sft qwen3_vl base model.vision=train train.max_steps=1
python3 - <<'P' || fail "the merged model is another one"
import json
def first(run): return json.loads(open(run + "/metrics.jsonl").readline())["loss"]
adapted, merged, base = map(first, ("adapted", "merged.run", "base"))
assert abs(adapted - merged) < 1e-5 < abs(adapted - base), (adapted, merged, base)
P

# The plan has the tower's weights, and moments of what trains.
for vision in none frozen projector train; do
  "$temper" check sft model.path=gemma3 data.train=rows.jsonl model.vision=$vision output_dir=planned --json > $vision.json 2> check.log
done
python3 - <<'P' || fail "plans: $(cat check.log)"
import json
none, frozen, projector, train = (json.load(open(v + ".json"))["plan"]["parts"] for v in ("none", "frozen", "projector", "train"))
assert none["weights"] < frozen["weights"] == projector["weights"] == train["weights"], (none, frozen, train)
assert none["optimizer"] == frozen["optimizer"] < projector["optimizer"] < train["optimizer"], (frozen, projector, train)
P

# wrong MESSAGE ARGUMENTS: one line, exit status 2.
wrong() {
  local message=$1
  shift
  "$temper" sft data.train=qwen3_vl.jsonl train.max_steps=1 output_dir=wrong "$@" > wrong.log 2>&1
  [ $? = 2 ] || fail "$*: $(cat wrong.log)"
  [ "$(grep -c . wrong.log)" = 1 ] || fail "$*: $(cat wrong.log)"
  grep -qF -- "$message" wrong.log || fail "$*: $(cat wrong.log)"
}
small_model
wrong 'expected frozen | projector | train | none' model.path=qwen3_vl model.vision=all
wrong 'has no vision tower that could train; expected frozen or none' model.path=model model.vision=train
wrong 'and it names none; as in [q_proj, v_proj, visual.' model.path=qwen3_vl model.vision=train adapter.method=lora
wrong 'names no linear layer' model.path=qwen3_vl adapter.method=lora 'adapter.target_modules=[attn.qkv]'
wrong 'dropout is not supported on a vision tower' model.path=qwen3_vl model.vision=train adapter.method=lora adapter.dropout=0.1 "$targets"
wrong 'which model.vision leaves as it is; expected projector or train' model.path=qwen3_vl adapter.method=lora adapter.path=lora/final
wrong "are not its projector's; expected model.vision: train" model.path=qwen3_vl model.vision=projector adapter.method=lora adapter.path=lora/final
exit $bad
