#!/usr/bin/env bash
# Flash attention in whole runs, by kernels that the device `pretend` emulates (tests/ops/flash_kernels.h): near the
# padded products of the same runs. Then the memory of a device: what `temper check` plans of it, and what a run says
# that fills it. $1: the program, $2: the same with the device.
set -uo pipefail
on_device=$(readlink -f "$2")
tests=$TEMPER_SOURCE_DIR/tests/e2e
. "$tests/common.sh"
. "$tests/mesh.sh"
even_reward
sizes='"vocab_size": 62, "hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "eos_token_id": 2'
family flat "{\"model_type\": \"qwen3\", $sizes, \"num_hidden_layers\": 2, \"tie_word_embeddings\": true}"
family windows "{\"model_type\": \"gemma3_text\", $sizes, \"num_hidden_layers\": 3, \"sliding_window\": 6, \"query_pre_attn_scalar\": 16,
  \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}"
base="model.device=pretend model.dtype=bfloat16 model.arithmetic=fast train.max_steps=3 train.micro_batch_tokens=64 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl]"
rows="data.train=rows.jsonl train.batch_size=6"
rl="data.train=prompts.jsonl rl.group_size=3 rl.prompts_per_rollout=3 rollout.max_new_tokens=6 rollout.cache_dtype=bfloat16"
rewards='rewards=[{name: even, command: [sh, even.sh]}]'

count() { sed -n "s/^operator $1\(\.out\)\? //p" "$2" | awk '{sum += $1} END {print sum + 0}'; }
# Losses and gradient norms of two runs are as near as rounding to bfloat16 lets them be.
near() { python3 - "$1/metrics.jsonl" "$2/metrics.jsonl" <<'P' || fail "$2: not near $1"
import json, sys
a, b = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
assert len(a) == len(b) > 0, (len(a), len(b))
for x, y in zip(a, b):
    for key in ("loss", "grad_norm"):
        if key in x: assert abs(x[key] - y[key]) <= 0.03 * max(1, abs(x[key])), (key, x[key], y[key])
P
}
with_and_without() { # VERB NAME ARGUMENTS
  local verb=$1 name=$2
  shift 2
  for form in padded flash; do
    rm -f "$name-$form.report"
    (if [ $form = flash ]; then export TEMPER_PRETEND_FLASH=1; fi
     TEMPER_PRETEND_REPORT=$name-$form.report "$on_device" "$verb" $base "$@" output_dir="$name-$form") > "$name-$form.log" 2>&1 ||
      fail "$verb $name, $form: $(tail -8 "$name-$form.log")"
  done
  [ "$(count _flash_attention_forward "$name-padded.report")" = 0 ] || fail "$name: flash attention where it was not asked for"
  [ "$(count _flash_attention_forward "$name-flash.report")" -gt 4 ] && [ "$(count _flash_attention_backward "$name-flash.report")" -gt 4 ] ||
    fail "$name: no flash attention"
}
for model in flat windows; do
  with_and_without sft sft-$model model.path=$model $rows
  near sft-$model-padded sft-$model-flash
done
[ "$(count bmm sft-flat-flash.report)" = 0 ] && [ "$(count bmm sft-windows-flash.report)" = 0 ] || fail "padded products of packed rows"
with_and_without sft sft-lora model.path=flat $rows adapter.method=lora adapter.rank=3 train.recompute=blocks
near sft-lora-padded sft-lora-flash
with_and_without dpo dpo model.path=windows data.train=pairs.jsonl train.batch_size=3
near dpo-padded dpo-flash
[ "$(count bmm dpo-flash.report)" -gt 0 ] || fail "a window that cuts prompts is no case of the kernels"
# Sampled from pages, trained on as a forest: the same tokens' log-probabilities.
with_and_without grpo grpo model.path=flat $rl "$rewards"
python3 - grpo-flash/metrics.jsonl <<'P' || fail "grpo: sampler and trainer differ"
import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    assert abs(row["mismatch_kl"]) < 2e-3, row["mismatch_kl"]
P
[ "$(count bmm grpo-flash.report)" = 0 ] || fail "grpo: padded products"

# A switch turns it off.
TEMPER_FLASH_ATTENTION=off TEMPER_PRETEND_FLASH=1 TEMPER_PRETEND_REPORT=off.report "$on_device" sft $base model.path=flat $rows output_dir=off > off.log 2>&1 ||
  fail "off: $(tail -3 off.log)"
[ "$(count _flash_attention_forward off.report)" = 0 ] || fail "TEMPER_FLASH_ATTENTION=off"
cmp -s off/final/model.safetensors sft-flat-padded/final/model.safetensors || fail "without flash attention: other weights"

# What a run takes of the device is at most what `check` plans, and not much less.
cat > wide.json <<'J'
{"model_type": "qwen3", "vocab_size": 3000, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 8,
 "num_key_value_heads": 4, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2}
J
"$temper" init --config wide.json --seed 3 --output wide > /dev/null || fail "init wide"
cat > layered.json <<'J'
{"model_type": "gemma4_text", "vocab_size": 3000, "vocab_size_per_layer_input": 3000, "hidden_size": 128, "intermediate_size": 384,
 "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "global_head_dim": 32, "hidden_size_per_layer_input": 16,
 "num_kv_shared_layers": 2, "sliding_window": 64, "use_double_wide_mlp": true, "eos_token_id": 2, "layer_types": ["sliding_attention",
 "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]}
J
"$temper" init --config layered.json --seed 3 --output layered > /dev/null || fail "init layered"
python3 - <<'P'
import json, random
random.seed(2)
with open("long.jsonl", "w") as f:
    for i in range(12):
        row = [random.randrange(3, 3000) for _ in range(400 + 20 * i)]
        f.write(json.dumps({"input_ids": row, "labels": row}) + "\n")
with open("asked.jsonl", "w") as f:
    for i in range(6): f.write(json.dumps({"prompt_ids": [random.randrange(3, 3000) for _ in range(60)], "target": i}) + "\n")
P
planned() { # VERB NAME ARGUMENTS: peak of the run beside the plan's
  local verb=$1 name=$2
  shift 2
  "$on_device" check "$verb" "$@" model.device=pretend output_dir="$name" --json > "$name.check" 2>&1 || fail "check $name: $(cat "$name.check")"
  TEMPER_PRETEND_REPORT=$name.report "$on_device" "$verb" "$@" model.device=pretend output_dir="$name" > "$name.log" 2>&1 ||
    fail "$verb $name: $(tail -3 "$name.log")"
  python3 - "$name.check" "$(sed -n 's/^peak_bytes //p' "$name.report")" <<'P' || fail "$name: its memory is not what was planned"
import json, sys
found, peak = json.load(open(sys.argv[1])), int(sys.argv[2])
check = next(c for c in found["checks"] if c["name"] == "memory")
planned = check["values"]["peak_bytes"] if "values" in check else check["peak_bytes"]
print(f"planned {planned / 1e6:.1f} MB, taken {peak / 1e6:.1f} MB", file=sys.stderr)
assert peak <= planned <= 2 * peak, (planned, peak)
P
}
long="model.path=wide data.train=long.jsonl train.batch_size=6 train.micro_batch_tokens=2048 train.max_steps=2 metrics.sinks=[]"
planned sft plan-float32 $long model.dtype=float32
planned sft plan-fast $long model.dtype=bfloat16 model.arithmetic=fast
TEMPER_PRETEND_FLASH=1 planned sft plan-flash $long model.dtype=bfloat16 model.arithmetic=fast
planned sft plan-blocks $long model.dtype=float32 train.recompute=blocks
planned sft plan-layered $long model.path=layered model.dtype=float32 train.recompute=blocks
planned sft plan-lora $long model.dtype=bfloat16 model.arithmetic=fast adapter.method=lora adapter.rank=4

# A device that is too small: `check` refuses it, and a run that fills it says what was planned and what to lower.
export TEMPER_PRETEND_BYTES=40000000
"$on_device" check sft $long model.dtype=float32 model.device=pretend output_dir=full > refused 2>&1
[ $? = 2 ] && grep -q 'memory.*pretend:0' refused || fail "check of a device that is too small: $(cat refused)"
"$on_device" sft $long model.dtype=float32 model.device=pretend output_dir=full > full.log 2>&1
[ $? = 1 ] || fail "a full device is no error: $(tail -2 full.log)"
for words in 'pretend:0 is full' 'planned for phase `train`' activations train.micro_batch_tokens train.batch_size train.recompute; do
  grep -qF "$words" full.log || fail "a full device: nothing of $words: $(cat full.log)"
done
"$on_device" grpo model.path=wide data.train=asked.jsonl rl.group_size=4 rl.prompts_per_rollout=6 rollout.max_new_tokens=40 "$rewards" \
  train.max_steps=1 metrics.sinks=[] model.device=pretend output_dir=full-rl > full-rl.log 2>&1
[ $? = 1 ] && grep -qF rollout.cache_bytes full-rl.log || fail "a full device of grpo: $(tail -3 full-rl.log)"
TEMPER_PRETEND_BYTES=4000000 "$on_device" score --model wide --input long.jsonl --device pretend --output none > full-score 2>&1
[ $? = 1 ] && grep -q 'the device is full' full-score || fail "a full device of score: $(cat full-score)"
exit $bad
