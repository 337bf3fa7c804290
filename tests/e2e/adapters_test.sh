#!/usr/bin/env bash
# Adapters from the command line: DoRA, whole modules, adapters by name, and what a model makes of rows (perplexity).
# $1: the program. With TEMPER_PEFT_PYTHON=PYTHON, PEFT reads what was trained, too.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

odd_model
awk 'BEGIN { for (i = 0; i < 40; ++i) { printf "{\"input_ids\": ["; n = 10 + i % 23; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; print "]}" } }' > rows.jsonl
head -9 rows.jsonl | sed 's/input_ids/tokens/' > prompts.jsonl
cat > run.yaml <<'Y'
model: {path: model}
data: {train: rows.jsonl}
train: {max_steps: 8, batch_size: 6, save_every: 3, micro_batch_tokens: 64}
optimizer: {learning_rate: 1.0e-2, warmup_steps: 2, weight_decay: 0.1}
adapter: {method: lora, rank: 4, dropout: 0.1}
metrics: {sinks: [jsonl]}
Y
numbers() { sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes)": [^,}]*,?//g' "$1"; }
loss() { grep -o '"loss": [0-9.e-]*' "$1/metrics.jsonl" | cut -d' ' -f2; }
sft() { "$temper" sft run.yaml output_dir="$@" > log 2>&1 || { fail "sft $*: $(tail -3 log)"; }; }

# Exact: killed, recomputed, on two ranks, sampled and scored, merged.
for kind in dora whole dora-bfloat16 head; do
  case $kind in
    dora) settings="adapter.use_dora=true adapter.loraplus_ratio=4" flags= ;;
    whole) settings="adapter.use_rslora=true adapter.modules_to_save=[embed_tokens]" flags= ;;
    head) settings="adapter.target_modules=[q_proj,down_proj,lm_head] adapter.dropout=0" flags= ;;
    dora-bfloat16) settings="adapter.use_dora=true adapter.modules_to_save=[lm_head] model.dtype=bfloat16" flags="--dtype bfloat16" ;;
  esac
  sft $kind $settings
  killed_after 0.4 "$temper" sft run.yaml output_dir=killed-$kind $settings > /dev/null 2>&1
  sft killed-$kind $settings
  cmp $kind/final/adapter_model.safetensors killed-$kind/final/adapter_model.safetensors || fail "$kind: a killed run has other weights"
  cmp <(numbers $kind/metrics.jsonl) <(numbers killed-$kind/metrics.jsonl) || fail "$kind: a killed run has other metrics"
  sft again-$kind $settings train.recompute=blocks
  cmp $kind/final/adapter_model.safetensors again-$kind/final/adapter_model.safetensors || fail "$kind: recomputed activations give other weights"
  "$temper" sft --nproc 2 run.yaml output_dir=two-$kind $settings > log 2>&1 || fail "$kind on two ranks: $(tail -3 log)"
  paste <(loss $kind) <(loss two-$kind) | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-5) exit 1; n++ } END { exit n == 8 ? 0 : 1 }' || fail "$kind: two ranks give another loss"
  awk 'NR == 1 { a = $1 } { b = $1 } END { exit b < a ? 0 : 1 }' <(loss $kind) || fail "$kind: the loss did not fall"
  "$temper" generate --model model --adapter $kind/final $flags --input prompts.jsonl --output a.jsonl --num-samples 2 --max-new-tokens 20 --seed 4 || fail "$kind: generate"
  sed -E 's/.*"prompt_tokens":(\[[^]]*\]),"tokens":(\[[^]]*\]).*/{"prompt_tokens":\1,"completion_tokens":\2}/' a.jsonl > completions.jsonl
  "$temper" score --model model --adapter $kind/final $flags --input completions.jsonl --output c.jsonl --max-batch 5 || fail "$kind: score"
  cmp <(grep -o '"logprobs":[^]]*' a.jsonl) <(grep -o '"logprobs":[^]]*' c.jsonl) || fail "$kind: sampled and scored log-probabilities differ"
done
grep -q '"use_dora": true' dora/final/adapter_config.json && grep -q lora_magnitude_vector dora/final/adapter_model.safetensors || fail "dora: what is saved is no DoRA adapter"
grep -q '"lm_head"' head/final/adapter_config.json && grep -aq 'base_model.model.lm_head.lora_B.weight' head/final/adapter_model.safetensors || fail "head: what is saved is no adapter of lm_head"
grep -q '"ensure_weight_tying": true' whole/final/adapter_config.json && grep -aq 'base_model.model.lm_head.weight' whole/final/adapter_model.safetensors || fail "whole: the tied weight is not saved as PEFT saves it"
for kind in dora whole head; do
  "$temper" export --model model --adapter $kind/final --output merged-$kind > log || fail "$kind: export: $(cat log)"
  "$temper" score --model merged-$kind --input prompts.jsonl --output m.jsonl
  "$temper" score --model model --adapter $kind/final --input prompts.jsonl --output $kind.scores
  paste <(grep -o '"logprobs":\[[^],]*' m.jsonl | cut -d'[' -f2) <(grep -o '"logprobs":\[[^],]*' $kind.scores | cut -d'[' -f2) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++ } END { exit n == 9 ? 0 : 1 }' || fail "$kind: merging changed the model"
  if [ -n "${TEMPER_PEFT_PYTHON:-}" ]; then
    "$TEMPER_PEFT_PYTHON" -W ignore "$here/peft_scores.py" model $kind/final prompts.jsonl $kind.scores 2> peft.log || fail "$kind: PEFT reads it otherwise: $(tail -3 peft.log)"
  fi
  # Going on from it, and preferring: the reference is a copy of it, or the base, so that the first loss is log 2.
  sft onward-$kind adapter.path=$kind/final $([ $kind = head ] && echo adapter.dropout=0)
  "$temper" sft onward-$kind/config.yaml 2>&1 | grep complete > /dev/null || fail "$kind: the resolved config does not run again"
  awk -F'[][]' '{ print "{\"prompt_ids\": [" $2 "], \"chosen_ids\": [5, 6], \"rejected_ids\": [9]}" }' rows.jsonl > pairs.jsonl
  for from in "adapter={path: $kind/final, dropout: 0}" "adapter={method: lora, use_dora: true, modules_to_save: [embed_tokens]}"; do
    "$temper" dpo "$from" model.path=model data.train=pairs.jsonl metrics.sinks=[jsonl] train.max_steps=2 optimizer.learning_rate=0.01 output_dir=dpo > log 2>&1 || fail "$from: dpo: $(tail -3 log)"
    loss dpo | awk 'NR == 1 && ($1 < 0.6931471 || $1 > 0.6931473) { exit 1 }' || fail "$kind: dpo's losses are $(loss dpo)"
    rm -rf dpo
  done
done

# Adapters by name: every row what its adapter alone gives, wherever it stands.
awk '{ n = NR % 3; sub(/}$/, n == 1 ? ", \"adapter\": \"d\"}" : n == 2 ? ", \"adapter\": \"w\"}" : "}"); print }' prompts.jsonl > named.jsonl
sample="--max-new-tokens 16 --seed 5 --num-samples 2"
"$temper" generate --model model --adapter d=dora/final --adapter w=whole/final --input named.jsonl --output named.out $sample || fail "named adapters: $?"
"$temper" generate --model model --adapter d=dora/final --adapter w=whole/final --input named.jsonl --output small.out $sample --max-batch 2 || fail "named adapters: $?"
cmp named.out small.out || fail "--max-batch changed rows of named adapters"
"$temper" generate --model model --input prompts.jsonl --output 0.out $sample
"$temper" generate --model model --adapter dora/final --input prompts.jsonl --output 1.out $sample
"$temper" generate --model model --adapter whole/final --input prompts.jsonl --output 2.out $sample
for i in $(seq 0 8); do grep "\"index\":$i," "$(((i + 1) % 3)).out"; done > expected
cmp expected <(sed -E 's/,"adapter":"[dw]"//' named.out) || fail "a row of a named adapter is not what the adapter alone gives"
[ "$(grep -c '"adapter":"d"' named.out)" = 6 ] || fail "the adapter is not in the output"
"$temper" score --model model --adapter w=whole/final --adapter d=dora/final --input named.jsonl --output named.scores --top-logprobs 2 || fail "score of named adapters: $?"
"$temper" score --model model --input prompts.jsonl --output 0.scores --top-logprobs 2
"$temper" score --model model --adapter dora/final --input prompts.jsonl --output 1.scores --top-logprobs 2
"$temper" score --model model --adapter whole/final --input prompts.jsonl --output 2.scores --top-logprobs 2
for i in $(seq 0 8); do grep "\"index\":$i," "$(((i + 1) % 3)).scores"; done | cmp - named.scores || fail "a row of a named adapter scores otherwise"
"$temper" score --model model --adapter whole/final --adapter d=dora/final --input named.jsonl --output x 2> log
[ $? = 2 ] && grep -q 'named.jsonl:2: `adapter`: found "w", expected d ' log || fail "an unknown adapter: $(cat log)"
sed -i 's/"w"/null/' named.jsonl
"$temper" score --model model --adapter whole/final --adapter d=dora/final --input named.jsonl --output x || fail "one adapter without a name: $?"
for i in $(seq 0 8); do grep "\"index\":$i," "$(((i + 1) % 3 == 1 ? 1 : 2)).scores"; done | sed -E 's/,"next_top.*/}/' | cmp - x || fail "rows without a name have not the adapter without one"

# Perplexity is the exponential of what an evaluation of SFT logs.
head -30 rows.jsonl > train.jsonl; tail -10 rows.jsonl > eval.jsonl
sft evaluated data.train=train.jsonl data.eval=eval.jsonl data.max_length=25 train.eval_every=8 train.micro_batch_tokens=2048
"$temper" eval --model model --adapter evaluated/final --input eval.jsonl --perplexity --max-length 25 --json > perplexity.json 2> log || fail "--perplexity: $(cat log)"
grep -q 'longer than --max-length 25' log || fail "cut rows are not told: $(cat log)"
python3 - <<'P' || fail "perplexity: $(cat perplexity.json)"
import json, math
found = json.load(open("perplexity.json"))
row = [r for r in map(json.loads, open("evaluated/metrics.jsonl")) if "eval/loss" in r][-1]
assert found["nll"] == row["eval/loss"] and found["perplexity"] == math.exp(row["eval/loss"])
assert found["tokens"] == row["eval/supervised_tokens"] and found["rows"] == 10
P
"$temper" eval --model model --input eval.jsonl --perplexity 2> /dev/null | grep '^perplexity ' > /dev/null || fail "no table of the perplexity"

# wrong EXPECTED VERB ...: exit status 2 and one line with EXPECTED.
wrong() {
  local status=0 message
  message=$("$temper" "${@:2}" 2>&1) || status=$?
  [ $status = 2 ] && [[ $message == *"$1"* ]] || fail "${*:2}: status $status, $message"
}
wrong 'adapter.use_dora: ' sft run.yaml output_dir=x adapter.path=dora/final adapter.use_dora=false
wrong 'adapter.modules_to_save: ' sft run.yaml output_dir=x adapter.path=dora/final 'adapter.modules_to_save=[lm_head]'
wrong 'found `norm`, expected some of embed_tokens' sft run.yaml output_dir=x 'adapter.modules_to_save=[norm]'
wrong 'adapter.use_dora' sft run.yaml output_dir=x peft_use_dora=true
wrong 'two adapters have the name d' generate --model model --adapter d=dora/final --adapter d=whole/final --input prompts.jsonl --output x
wrong 'found two unnamed adapters' generate --model model --adapter dora/final --adapter whole/final --input prompts.jsonl --output x
wrong 'expected a directory' chat --model model --adapter d=dora/final
wrong 'no such adapter; expected a directory with adapter_config.json' generate --model model --adapter d=nowhere --input prompts.jsonl --output x
wrong 'take one --adapter DIR' eval --model model --adapter d=dora/final --input eval.jsonl --perplexity
wrong 'has a token to predict' eval --model model --input eval.jsonl --perplexity --max-length 1
exit $bad
