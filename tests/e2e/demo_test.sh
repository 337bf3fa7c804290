#!/usr/bin/env bash
# The demo from start to end, cut short; what it learns is seen by running it whole. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"

for run in first again; do  # an earlier demo is replaced
  "$temper" demo --output d --sft-steps 3 --rl-steps 2 > "$run.log" || fail "the $run demo: $?"
  grep -q '^accuracy on 300 held-out sums: random model 0 %' "$run.log" || fail "$run: no accuracy"
done
for file in model/tokenizer.json sums.jsonl test.jsonl warm-up/final/model.safetensors grpo/final/model.safetensors \
    grpo/report.html grpo/rollouts/step-2.jsonl; do
  [ -s "d/$file" ] || fail "no $file"
done
[ "$(grep -c . d/grpo/metrics.jsonl)" = 2 ] || fail "not two rows of metrics"
[ "$(cat d/test.jsonl d/sums.jsonl | cut -d, -f1 | sort | uniq -d | grep -cFf <(cut -d, -f1 d/test.jsonl))" = 0 ] ||
  fail "a test row is trained"
"$temper" eval --model d/grpo/final --input d/test.jsonl --reward exact --max-new-tokens 4 > eval.log || fail "eval: $?"
grep -q '^pass@1' eval.log || fail "eval prints no pass@1"

# A run says what it will do and where everything is; the commands that it names run.
"$temper" sft model.path=d/model data.train=d/sums.jsonl output_dir=said adapter.method=lora train.max_steps=2 > said.log 2>&1 || fail "sft: $(cat said.log)"
grep -q '^sft of d/model: [0-9,]* of [0-9,]* parameters are trainable (LoRA, rank 16); ' said.log && grep -q '^2 steps: batches of up to 8 rows, from 20,000 rows, [0-9,]* tokens; output in said$' said.log ||
  fail "how a run begins: $(cat said.log)"
grep -q '^adapter: said/final$' said.log && grep -q '^report:  said/report.html$' said.log || fail "how a run ends: $(cat said.log)"
head -5 d/test.jsonl > few.jsonl
"$temper" grpo model.path=d/warm-up/final data.train=few.jsonl output_dir=said-rl 'rewards=[{name: exact}]' rollout.temperature=0.7 \
  rollout.max_new_tokens=4 rl.prompts_per_rollout=4 train.max_steps=1 > said-rl.log 2>&1 || fail "grpo: $(cat said-rl.log)"
grep -q '^1 step: a rollout of 4 prompts x 8 completions (at most 4 tokens) each; output in said-rl$' said-rl.log || fail "how a run begins: $(cat said-rl.log)"
sed -n 's/^\(try: \)\{0,1\}  *temper //p' said.log said-rl.log > commands
[ "$(wc -l < commands)" = 3 ] || fail "commands to try: $(cat said.log said-rl.log)"
grep -q -- --prompt commands && fail "a prompt of which the demo's tokenizer has no character: $(cat commands)"
while read -r command; do eval "\"\$temper\" $command" > tried.log 2>&1 < /dev/null || fail "temper $command: $(tail -3 tried.log)"; done < commands
grep -q -- '--reward exact --temperature 0.7 --max-new-tokens 4$' commands || fail "commands to try: $(cat commands)"

# What `tokenize` shows of rows of ids is what is trained; ids that no model of this vocabulary has are errors, and so
# is no row.
echo '{"input_ids": [2, 11, 3], "labels": [-100, -100, 3]}' > ids.jsonl
"$temper" tokenize --model d/model --input ids.jsonl --output - | grep -q '"tokens":\[2,11,3\],"labels":\[-100,-100,3\]' || fail "tokenize: ids and labels"
echo '{"prompt_ids": [2], "chosen_ids": [11], "rejected_ids": [3]}' > pair.jsonl
"$temper" tokenize --model d/model --input pair.jsonl --output - | grep -q '^{"chosen":{"text":".*","tokens":\[2,11\],"labels":\[-100,11\]},"rejected":{.*"tokens":\[2,3\],"labels":\[-100,3\]}}$' || fail "tokenize: a pair"
for row in '{"tokens": [1, 99]}' '{"input_ids": [1, 99]}' ''; do
  echo "$row" > wrong.jsonl
  status=0; "$temper" tokenize --model d/model --input wrong.jsonl --output o > wrong.log 2>&1 || status=$?
  [ $status = 2 ] && grep -q 'wrong.jsonl:.*\(holds 99; ids of this model are 0 to 12\|no rows\)' wrong.log && [ ! -e o ] || fail "tokenize $row: $status $(cat wrong.log)"
done
# A table of text is rows like any other.
printf 'prompt,completion\n1+1=,2\n1+2=,3\n' > rows.csv
echo '[{"prompt": "1+1=", "completion": "2"}, {"prompt": "1+2=", "completion": "3"}]' > rows.json
sed 's/^\[//; s/]$//; s/}, {/}\n{/' rows.json > rows.jsonl
for file in rows.jsonl rows.csv rows.json; do
  "$temper" sft model.path=d/model data.train=$file output_dir=table train.max_steps=1 resume=never > table.log 2>&1 || fail "$file: $(tail -1 table.log)"
  cp table/final/model.safetensors $file.safetensors
  cmp rows.jsonl.safetensors $file.safetensors || fail "$file trains otherwise than rows.jsonl"
done

# The configs that the project brings run on what the demo leaves, or on rows of their form.
ln -s d demo
configs=$TEMPER_SOURCE_DIR/configs
"$temper" sft $configs/sft.yaml train.max_steps=2 > sft.log 2>&1 || fail "sft.yaml: $(tail -1 sft.log)"
"$temper" sft $configs/lora.yaml train.max_steps=2 > lora.log 2>&1 || fail "lora.yaml: $(tail -1 lora.log)"
[ -s runs/lora/final/adapter_model.safetensors ] && [ -s runs/lora/final/tokenizer.json ] || fail "lora.yaml leaves no adapter with its tokenizer"
"$temper" data pairs --input demo/sums.jsonl --output d/pairs.jsonl 2> pairs.log || fail "data pairs: $(cat pairs.log)"
for verb in dpo orpo reward distill; do
  "$temper" $verb $configs/$verb.yaml train.max_steps=2 > $verb.log 2>&1 || fail "$verb.yaml: $(tail -1 $verb.log)"
done
for i in 1 2 3 4; do echo "{\"question\": \"$i + $i =\", \"answer\": \"So it is. #### $((2 * i))\"}"; done > gsm.jsonl
"$temper" sft $configs/sft_gsm8k.yaml model.path=d/model data.train=gsm.jsonl data.eval=gsm.jsonl train.max_steps=2 > sft.log 2>&1 ||
  fail "sft_gsm8k.yaml: $(tail -1 sft.log)"
"$temper" grpo $configs/grpo_gsm8k.yaml model.path=d/model data.train=gsm.jsonl train.max_steps=1 rollout.max_new_tokens=8 > grpo.log 2>&1 ||
  fail "grpo_gsm8k.yaml: $(tail -1 grpo.log)"
"$temper" data pairs --input gsm.jsonl --columns prompt=question completion=answer --output gsm_pairs.jsonl 2> pairs.log || fail "data pairs: $(cat pairs.log)"
for verb in dpo orpo reward; do
  "$temper" $verb $configs/${verb}_gsm8k.yaml model.path=d/model data.train=gsm_pairs.jsonl data.validation_fraction=0.3 train.max_steps=1 train.eval_every=1 > $verb.log 2>&1 ||
    fail "${verb}_gsm8k.yaml: $(tail -1 $verb.log)"
done
"$temper" distill $configs/distill_gsm8k.yaml model.path=d/model distill.teacher=d/grpo/final data.train=gsm.jsonl data.validation_fraction=0.3 train.max_steps=1 train.eval_every=1 > distill.log 2>&1 ||
  fail "distill_gsm8k.yaml: $(tail -1 distill.log)"

"$temper" ppo $configs/ppo.yaml train.max_steps=2 rl.prompts_per_rollout=8 > ppo.log 2>&1 || fail "ppo.yaml: $(tail -1 ppo.log)"
"$temper" ppo $configs/ppo_gsm8k.yaml model.path=d/model data.train=gsm.jsonl train.max_steps=1 rl.prompts_per_rollout=4 rollout.max_new_tokens=8 > ppo.log 2>&1 ||
  fail "ppo_gsm8k.yaml: $(tail -1 ppo.log)"

# A reference or teacher whose ids mean other tokens is refused, and one that is not there by its key.
cp -r d/model swapped
python3 - <<'P'
import json
tokenizer = json.load(open("swapped/tokenizer.json"))
vocabulary = tokenizer["model"]["vocab"]
vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
json.dump(tokenizer, open("swapped/tokenizer.json", "w"))
P
refused() { "$temper" "${@:2}" output_dir=refused > refused.log 2>&1; [ $? = 2 ] && grep -q -- "$1" refused.log || fail "${*:2}: $(cat refused.log)"; }
refused 'preference.reference_model: .*another tokenizer: token' dpo $configs/dpo.yaml preference.reference=model preference.reference_model=swapped
refused 'preference.reference_model: no model at nowhere' dpo $configs/dpo.yaml preference.reference=model preference.reference_model=nowhere
refused 'distill.teacher: .*token' distill $configs/distill.yaml distill.teacher=swapped
refused 'distill.teacher: no model at nowhere' distill $configs/distill.yaml distill.teacher=nowhere
refused 'rewards.*no model at nowhere' grpo $configs/grpo_gsm8k.yaml model.path=d/model data.train=gsm.jsonl 'rewards=[{model: nowhere}]'

"$temper" data pairs --rollouts d/grpo --output best.jsonl 2> pairs.log && grep -q '"chosen_ids"' best.jsonl || grep -q 'nothing to make pairs of' pairs.log ||
  fail "data pairs of rollouts: $(cat pairs.log)"

mkdir other && touch other/mine
"$temper" demo --output other 2> error.log && fail "another directory is overwritten"
grep -q 'holds something else' error.log && [ -e other/mine ] || fail "another directory: $(cat error.log)"
# Where there is no chat template, a prompt is suggested that the tokenizer has tokens for.
mkdir text && (
  cd text && json_model && rm model/tokenizer_config.json && echo '{"text": "a b c"}' > rows.jsonl &&
    "$temper" sft model.path=model data.train=rows.jsonl output_dir=run train.max_steps=1
) > text.log 2>&1 && grep -q "temper generate --model run/final --prompt 'the beginning of a text'" text.log || fail "a prompt to try: $(cat text.log)"
exit $bad
