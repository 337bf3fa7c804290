#!/usr/bin/env bash
# Training from the command line: a run that is killed ends with the uninterrupted run's bits, ranks agree with one,
# Ctrl-C is kept, and what `generate` prints `score` computes bit for bit. $1: the program.
# Part of `make test`.
set -euo pipefail
. "$(dirname "$0")/common.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

odd_model
# Rows of a pattern that can be learned: 5 + (7 i + 3 k) mod 300.
awk 'BEGIN { for (i = 0; i < 60; ++i) { printf "{\"input_ids\": ["; n = 10 + i % 23; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; print "]}" } }' > rows.jsonl
cat > run.yaml <<'Y'
model: {path: model}
data: {train: rows.jsonl}
train: {max_steps: 12, batch_size: 6, save_every: 3, micro_batch_tokens: 64}
optimizer: {learning_rate: 1.0e-2, warmup_steps: 2, weight_decay: 0.1}
metrics: {sinks: [jsonl]}
Y
# What a step computed, without what the clock and the machine say.
numbers() { sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes)": [^,}]*,?//g' "$1"; }

for kind in none lora none-bfloat16 lora-bfloat16; do
  settings="adapter.method=${kind%-*} adapter.dropout=0.1" delays="0.25 0.35 0.5 0.7"
  [[ $kind = *bfloat16 ]] && settings+=" model.dtype=bfloat16" delays="0.4"
  "$temper" sft run.yaml output_dir=whole-$kind $settings
  result=$(echo whole-$kind/final/*model.safetensors)
  for delay in $delays; do
    rm -rf killed
    killed_after $delay "$temper" sft run.yaml output_dir=killed $settings || true
    "$temper" sft run.yaml output_dir=killed $settings > /dev/null
    cmp "$result" "killed/${result#*/}" || fail "$kind: weights of a run killed after $delay s differ"
    cmp <(numbers whole-$kind/metrics.jsonl) <(numbers killed/metrics.jsonl) || fail "$kind: metrics of a run killed after $delay s differ"
  done
done
for method in none lora; do
  "$temper" sft run.yaml output_dir=again-$method adapter.method=$method adapter.dropout=0.1 train.recompute=blocks
  cmp whole-$method/final/*model.safetensors again-$method/final/*model.safetensors || fail "$method: recomputed activations give other weights"
done
OMP_NUM_THREADS=1 "$temper" sft run.yaml output_dir=one-thread
cmp whole-none/final/model.safetensors one-thread/final/model.safetensors || fail "one thread gives other weights"

# Two processes learn what one does; that no split into passes or ranks matters is a test of the trainer.
loss() { grep -o '"loss": [0-9.e-]*' "$1" | cut -d' ' -f2; }
same() { paste <(loss "$1") <(loss "$2") | awk -v limit="$3" '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > limit) exit 1; n++ } END { exit n == 12 ? 0 : 1 }'; }
"$temper" sft --nproc 2 run.yaml output_dir=two
same whole-none/metrics.jsonl two/metrics.jsonl 1e-5 || fail "two ranks give another loss"
awk 'NR == 1 { a = $1 } { b = $1 } END { exit b < a - 0.4 ? 0 : 1 }' <(loss whole-none/metrics.jsonl) || fail "the loss did not fall"

# Weights rounded to bfloat16 learn the same, to its precision; the master copies are float32.
for method in none lora; do
  same whole-$method/metrics.jsonl whole-$method-bfloat16/metrics.jsonl 0.02 || fail "$method: bfloat16 learns otherwise"
  cmp -s <(loss whole-$method/metrics.jsonl) <(loss whole-$method-bfloat16/metrics.jsonl) && fail "$method: model.dtype changes nothing"
done
grep -q '"dtype":"F32"' whole-none-bfloat16/final/model.safetensors && ! grep -q BF16 whole-none-bfloat16/final/model.safetensors ||
  fail "bfloat16: the trained weights are not float32"

for file in policy.safetensors policy.optimizer.safetensors state.json; do
  [ -s whole-none/checkpoints/step-12/$file ] || fail "a checkpoint without $file"
done
grep -q '"task"' whole-none/checkpoints/step-12/state.json || fail "a checkpoint without the task's state"
"$temper" sft run.yaml output_dir=shared train.max_steps=2 rl.beta=0.1 > shared.log 2>&1 || fail "a file that sft shares with grpo: $(cat shared.log)"
grep -q '`rl` is not used by sft' shared.log || fail "rl.beta is passed over without a word: $(cat shared.log)"
"$temper" sft run.yaml output_dir=whole-none | grep complete > /dev/null || fail "a complete run does not say so"

# Going on from an adapter takes its rank from it, and the resolved config runs again.
"$temper" sft run.yaml output_dir=small-rank adapter.method=lora adapter.rank=3 adapter.alpha=7 > /dev/null
"$temper" sft run.yaml output_dir=onward adapter.path=small-rank/final > /dev/null
grep -q '"r": 3' onward/final/adapter_config.json || fail "adapter.path: the rank is not the adapter's"
"$temper" sft onward/config.yaml | grep complete > /dev/null || fail "adapter.path: the resolved config does not run again"

# Ctrl-C saves, says so and exits with 130; the run goes on from there.
"$temper" sft run.yaml output_dir=stopped train.max_steps=300000 2> stopped.err & pid=$!
until_rows stopped 1 $pid; kill -INT $pid; status=0; wait $pid || status=$?
[ $status = 130 ] && grep -q 'continues from there' stopped.err || fail "Ctrl-C: status $status, $(cat stopped.err)"
[ -n "$(ls stopped/checkpoints)" ] || fail "Ctrl-C left no checkpoint"

# Sampling and scoring agree bit for bit, whatever the batch.
head -9 rows.jsonl | sed 's/input_ids/tokens/' > prompts.jsonl
for model in "--model whole-none/final" "--model model --adapter whole-lora/final" "--model model --adapter whole-lora-bfloat16/final --dtype bfloat16"; do
  "$temper" generate $model --input prompts.jsonl --output a.jsonl --num-samples 3 --max-new-tokens 30 --temperature 0.9 --top-k 40 --seed 4
  "$temper" generate $model --input prompts.jsonl --output b.jsonl --num-samples 3 --max-new-tokens 30 --temperature 0.9 --top-k 40 --seed 4 --max-batch 2
  cmp a.jsonl b.jsonl || fail "$model: --max-batch changed the samples"
  sed -E 's/.*"prompt_tokens":(\[[^]]*\]),"tokens":(\[[^]]*\]).*/{"prompt_tokens":\1,"completion_tokens":\2}/' a.jsonl > completions.jsonl
  "$temper" score $model --input completions.jsonl --output c.jsonl --temperature 0.9 --max-batch 5
  cmp <(grep -o '"logprobs":[^]]*' a.jsonl) <(grep -o '"logprobs":[^]]*' c.jsonl) || fail "$model: sampled and scored log-probabilities differ"
done

# Completions that rewards judge: the same numbers whatever the ranks and after a stop, under any verb.
for i in $(seq 9); do echo "{\"input_ids\": [$i, $((i + 30)), 7, $((i + 50)), 9], \"labels\": [-100, -100, -100, $((i + 50)), 9]}"; done > asked.jsonl
judge() { local out=$1; shift; "$temper" sft run.yaml output_dir=$out data.eval=asked.jsonl train.eval_every=3 'train.eval_rewards=[{name: length}]' train.eval_completions=2 rollout.max_new_tokens=9 rollout.temperature=0.9 "$@" > $out.log 2>&1; }
rewards_of() { grep -o '"eval/[a-z_/]*\(reward\|length\|truncated\)[a-z_]*": [^,}]*' $1/metrics.jsonl | sed -E 's/([0-9]\.[0-9]{9})[0-9]*/\1/'; }
judge judged || fail "eval_rewards: $(tail -1 judged.log)"
[ "$(rewards_of judged | grep -c '"eval/rewards/length"')" = 4 ] || fail "eval_rewards: $(cat judged/metrics.jsonl)"
judge judged-two --nproc 2 || fail "eval_rewards on two ranks: $(tail -1 judged-two.log)"
diff <(rewards_of judged | head -4) <(rewards_of judged-two | head -4) || fail "eval_rewards: other numbers on two ranks"
judge judged-half train.max_steps=6 optimizer.schedule=constant && judge judged-half optimizer.schedule=constant && judge judged-whole optimizer.schedule=constant || fail "eval_rewards resumed: $(tail -1 judged-half.log)"
diff <(rewards_of judged-half) <(rewards_of judged-whole) || fail "eval_rewards: other numbers after resuming"
for wrong in 'data.eval=[]' 'train.eval_rewards=[{name: lenght}]' 'train.eval_rewards=[{name: exact}]' 'train.eval_completions=0' 'rollout.temperature=-1'; do
  status=0; judge wrong "$wrong" || status=$?
  [ $status = 2 ] && [ "$(grep -c . wrong.log)" = 1 ] || fail "eval_rewards, $wrong: $status, $(cat wrong.log)"
done

# A merged adapter is the adapter.
"$temper" export --model model --adapter whole-lora/final --output merged > /dev/null
"$temper" score --model merged --input prompts.jsonl --output m.jsonl
"$temper" score --model model --adapter whole-lora/final --input prompts.jsonl --output n.jsonl
paste <(grep -o '"logprobs":\[[^],]*' m.jsonl | cut -d'[' -f2) <(grep -o '"logprobs":\[[^],]*' n.jsonl | cut -d'[' -f2) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++ } END { exit n == 9 ? 0 : 1 }' || fail "merging changed the model"
echo "ok"
