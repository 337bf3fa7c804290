#!/usr/bin/env bash
# Distillation from outside: every strategy, ranks, a teacher that was recorded, errors. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
small_model
sed 's/"hidden_size": 32/"hidden_size": 48/; s/"num_hidden_layers": 2/"num_hidden_layers": 4/' config.json > wide.json
"$temper" init --config wide.json --seed 5 --output teacher > /dev/null || exit 1
awk 'BEGIN { for (i = 0; i < 12; ++i) { printf "{\"input_ids\": ["; for (k = 0; k < 6 + i % 5; ++k) printf "%s%d", k ? ", " : "", 3 + (7 * i + 3 * k) % 58; print "]}" } }' > rows.jsonl
sed 's/input_ids/prompt_ids/' rows.jsonl > prompts.jsonl
common="model.path=model data.train=rows.jsonl train.batch_size=4 train.max_steps=3 optimizer.learning_rate=1e-2"
# losses DIR: to six digits, as ranks and recorded numbers agree to the rounding of float32.
losses() { grep -o '"\(loss\|distill_loss\|task_loss\)": *[^,}]*' "$1/metrics.jsonl" | awk -F': *' '{ printf "%s %.5f\n", $1, $2 }'; }
run() { local name=$1; shift; "$temper" distill "$@" output_dir=$name > $name.log 2>&1 || fail "$name: $(tail -2 $name.log)"; }

for strategy in logit attention_transfer attention_projection feature_pooling feature_projection; do
  run $strategy $common distill.teacher=teacher distill.strategy=$strategy data.eval=rows.jsonl train.eval_every=3
  grep -q '"eval/distill_loss"' $strategy/metrics.jsonl || fail "$strategy: no eval/distill_loss"
  [ -s $strategy/final/model.safetensors ] || fail "$strategy: no final/"
done
[ -s feature_projection/projection/model.safetensors ] || fail "no learned map beside final/"
run on_policy $common data.train=prompts.jsonl distill.teacher=teacher distill.strategy=on_policy rollout.max_new_tokens=5
sed 's/"input_ids": \(\[[0-9]*, [0-9]*, [0-9]*\)\(.*\)}/"input_ids": \1\2, "prompt_ids": \1]}/' rows.jsonl > both.jsonl
run gkd $common data.train=both.jsonl distill.teacher=teacher distill.strategy=on_policy distill.lambda=0.5 train.max_steps=8 rollout.max_new_tokens=5
grep -q '"on_policy_share": *1' gkd/metrics.jsonl && grep -q '"on_policy_share": *0[,}.]' gkd/metrics.jsonl || fail "lambda: $(grep -o '"on_policy_share": *[^,}]*' gkd/metrics.jsonl | paste -s)"
run seq_kd $common data.train=prompts.jsonl distill.teacher=teacher distill.strategy=on_policy distill.lambda=0 distill.seq_kd=true rollout.max_new_tokens=5
for divergence in reverse_kl jsd; do run $divergence $common distill.teacher=teacher distill.divergence=$divergence distill.temperature=2; done
run logit-ranks --nproc 2 $common distill.teacher=teacher data.eval=rows.jsonl train.eval_every=3
[ "$(losses logit)" = "$(losses logit-ranks)" ] || fail "two ranks: $(losses logit | paste - <(losses logit-ranks))"

# A teacher whose likeliest tokens were recorded is the teacher.
"$temper" distill --precompute $common distill.teacher=teacher distill.top_k=8 distill.teacher_logprobs=teacher.safetensors output_dir=x > precompute.log 2>&1 ||
  fail "--precompute: $(tail -1 precompute.log)"
run recorded $common distill.teacher_logprobs=teacher.safetensors distill.top_k=8
run again $common distill.teacher_logprobs=teacher.safetensors distill.top_k=8 distill.teacher=./teacher
[ "$(losses recorded)" = "$(losses again)" ] || fail "recorded, with the teacher named too"
run beside $common distill.teacher=teacher distill.top_k=8
[ "$(losses recorded)" = "$(losses beside)" ] || fail "recorded: $(losses recorded | paste - <(losses beside))"

# refuse TEXT ARGUMENTS...: exit 2, one line that says TEXT.
refuse() {
  local text=$1 status=0; shift
  "$temper" distill $common output_dir=x "$@" > out 2> err || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "expected $text: status $status: $(cat err)"
}
refuse 'teacher predicts, distill.teacher is' distill.teacher_logprobs=teacher.safetensors distill.teacher=model distill.top_k=8
(mkdir odd && cd odd && odd_model)
refuse '331' distill.teacher=odd/model
refuse 'distill.layers' distill.teacher=teacher distill.strategy=feature_pooling distill.layers=[[0,9]]
refuse 'distill.strategy' distill.teacher=teacher distill.strategy=logits
refuse 'nowhere' distill.teacher=nowhere
refuse 'distill.lambda' distill.teacher=teacher distill.strategy=on_policy distill.lambda=1.5
refuse 'the student completes all rows' distill.teacher=teacher distill.strategy=on_policy distill.seq_kd=true
refuse 'the student without a tokenizer' distill.teacher=odd/model distill.cross_tokenizer=gold
refuse 'gold | uld' distill.teacher=odd/model distill.cross_tokenizer=yes
exit $bad
