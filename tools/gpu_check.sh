#!/usr/bin/env bash
# Whether Temper computes on a GPU what it computes on the CPU, and how fast: builds it with CUDA, compares losses and
# log-probabilities of every kind of training with the CPU's, measures fine-tuning, GRPO and sampling. Under ten
# minutes. Prints a report; exits 1 where a number differs by more than rounding. usage: tools/gpu_check.sh [--device
# cuda:0] [--program PATH]    (a program that is built already)
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD device=cuda program=
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2 ;;
    --program) program=$(readlink -f "$2") ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -z "$program" ]; then
  make CUDA=1 || exit 1
  program=$root/build-cuda/temper
fi
set -- "$program"
. "$root/tests/e2e/common.sh"  # in an empty directory
fail() { echo "DIFFERS: $*"; bad=1; }

echo "== machine"
"$program" doctor || exit 1

. "$root/tests/e2e/mesh.sh"  # models of three families, and rows
unset OMP_NUM_THREADS
cat > even.py <<'P'
import json, sys
for line in sys.stdin:
    ids = json.loads(line)["completion_tokens"]
    print(sum(i % 2 == 0 for i in ids) / len(ids), flush=True)
P

echo "== float32 on $device against the CPU: largest relative difference of a loss or gradient norm"
base="train.max_steps=4 train.micro_batch_tokens=64 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl] model.dtype=float32"
compare() { # NAME VERB ARGUMENTS
  local name=$1 verb=$2
  shift 2
  "$program" "$verb" $base "$@" model.device=cpu output_dir="$name-cpu" > "$name.log" 2>&1 &&
    "$program" "$verb" $base "$@" model.device="$device" output_dir="$name-gpu" > "$name.log" 2>&1 ||
    { fail "$name did not run: $(tail -3 "$name.log")"; return; }
  python3 - "$name" "$name-cpu/metrics.jsonl" "$name-gpu/metrics.jsonl" << 'P' || fail "$name"
import json, sys
a, b = ([json.loads(line) for line in open(path)] for path in sys.argv[2:])
most = max((abs(x[key] - y[key]) / max(1e-2, abs(x[key])), x["step"], key)
           for x, y in zip(a, b) for key in ("loss", "grad_norm", "eval/loss") if key in x)
print(f"{sys.argv[1]:20} {most[0]:.1e} ({most[2]}, step {most[1]})")
sys.exit(len(a) != len(b) or most[0] > 1e-3)
P
}
rows="data.train=rows.jsonl data.eval=rows.jsonl train.batch_size=4"
pairs="data.train=pairs.jsonl train.batch_size=4"
for model in $families; do compare sft-$model sft model.path=$model $rows; done
compare lora sft model.path=qwen3 $rows adapter.method=lora adapter.rank=4
compare dora sft model.path=qwen3 $rows adapter.method=lora adapter.rank=4 adapter.use_dora=true
compare qlora sft model.path=qwen3 $rows adapter.method=qlora adapter.rank=4
for optimizer in $("$program" list optimizers | cut -d " " -f 1); do compare $optimizer sft model.path=qwen3 $rows optimizer.name=$optimizer; done
compare dpo dpo model.path=qwen3 $pairs
compare reward reward model.path=llama $pairs
for strategy in logit attention_transfer feature_projection; do
  compare distill-$strategy distill model.path=qwen3 distill.teacher=llama $rows distill.strategy=$strategy
done

echo "== sampling in float32: log-probabilities of the sampled tokens, as the CPU scores them"
for i in $(seq 5 36); do echo "{\"tokens\": [$i, $((i + 7)), 5, $((i + 20))]}"; done > asked.jsonl
for model in $families; do
  "$program" generate --model $model --input asked.jsonl --max-new-tokens 24 --device "$device" --dtype float32 --output sampled.jsonl &&
    "$program" score --model $model --input sampled.jsonl --device cpu --output scored.jsonl || fail "sampling from $model"
  python3 - $model << 'P' || fail "sampling from $model"
import json, sys
a, b = ([json.loads(line)["logprobs"] for line in open(path)] for path in ("sampled.jsonl", "scored.jsonl"))
most = max(abs(x - y) for one, other in zip(a, b) for x, y in zip(one, other[-len(one):]))
print(f"{sys.argv[1]:20} {most:.1e}")
sys.exit(most > 1e-4)
P
done
"$program" grpo $base model.path=qwen3 model.device="$device" data.train=prompts.jsonl rl.group_size=4 rl.prompts_per_rollout=4 \
  rollout.max_new_tokens=8 'rewards=[{command: [python3, even.py]}]' output_dir=grpo > grpo.log 2>&1 || fail "grpo: $(tail -3 grpo.log)"
python3 -c 'import json
rows = [json.loads(line) for line in open("grpo/metrics.jsonl")]
print("grpo                 mismatch_kl", max(row.get("mismatch_kl", 0) for row in rows))'

echo "== speed (29M parameters, bench/model)"
"$program" init --config "$root/bench/model/config.json" --tokenizer "$root/bench/model" --output bench > /dev/null || fail "the benchmark's model"
python3 - << 'P'
import json
with open("bench.jsonl", "w") as f:
    for i in range(256):
        f.write(json.dumps({"input_ids": [(7 * i + 13 * j) % 30000 + 5 for j in range(100 + i % 100)]}) + "\n")
with open("bench_prompts.jsonl", "w") as f:
    for i in range(64):
        f.write(json.dumps({"tokens": [(5 * i + 3 * j) % 30000 + 5 for j in range(64)]}) + "\n")
P
speed() { # NAME ARGUMENTS
  local name=$1
  shift
  "$program" sft model.path=bench data.train=bench.jsonl train.batch_size=16 train.micro_batch_tokens=4096 train.max_steps=${STEPS:-12} \
    metrics.sinks=[jsonl] output_dir="speed-$name" "$@" > "$name.log" 2>&1 || { fail "sft $name: $(tail -3 "$name.log")"; return; }
  python3 - "$name" "speed-$name/metrics.jsonl" << 'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[2])][2:]
print(f"sft {sys.argv[1]:16} {sum(r['tokens'] for r in rows) / sum(r['step_seconds'] for r in rows):,.0f} tokens/s")
P
}
speed float32-cpu model.device=cpu
speed float32-gpu model.device="$device" model.dtype=float32
speed bfloat16-gpu model.device="$device"
for place in cpu "$device"; do
  start=$(date +%s.%N)
  "$program" generate --model bench --input bench_prompts.jsonl --max-new-tokens ${TOKENS:-64} --ignore-eos --device "$place" --output "decoded-${place%%:*}.jsonl" ||
    fail "generate on $place"
  python3 -c "print(f'generate $place: {64 * ${TOKENS:-64} / ($(date +%s.%N) - $start):,.0f} tokens/s, start-up included')"
done
[ $bad = 0 ] && echo "== everything agrees"
exit $bad
