#!/usr/bin/env bash
# Distillation from outside: every strategy, ranks, a teacher that was recorded, errors. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT
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

# A teacher behind an address is the teacher, to the bit. serve ARGUMENTS...: its address in $address.
serve() { "$temper" serve --port 0 "$@" > serve.log 2>&1 & address_of serve.log $! || fail "serve: $(cat serve.log)"; }
TEACHER_KEY=secret serve --model teacher --api-key-env TEACHER_KEY
server=$!
export TEACHER_KEY=secret
remote="distill.teacher={url: $address, api_key_env: TEACHER_KEY}"
for strategy in logit on_policy; do
  common_of="$common data.train=both.jsonl rollout.max_new_tokens=5 distill.strategy=$strategy distill.top_k=8"
  run here-$strategy $common_of distill.teacher=teacher
  run there-$strategy $common_of "$remote"
  cmp here-$strategy/final/model.safetensors there-$strategy/final/model.safetensors || fail "$strategy: a teacher behind an address has other bits"
done
run there-ranks --nproc 2 $common "$remote" distill.top_k=8
[ "$(losses there-ranks)" = "$(losses beside)" ] || fail "two ranks and a teacher behind an address"
"$temper" check distill $common "$remote" distill.top_k=8 output_dir=checked > check.log || fail "check: $(grep -v ^pass check.log)"
grep -q "^pass *teacher .*$address: teacher, its 8 likeliest tokens" check.log || fail "check: $(grep teacher check.log)"
kill $server; wait $server 2> /dev/null
"$temper" check distill $common "$remote" distill.top_k=8 output_dir=checked > check.log && fail "check passes a teacher that is gone"
grep -q '^fail *teacher .*start it first' check.log || fail "check: $(grep teacher check.log)"

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

# A teacher with another tokenizer: on texts, sampled by the student, with an adapter; stopped and resumed.
mkdir cross && cd cross || exit 1
python3 - "$TEMPER_SOURCE_DIR/tests/golden/tokenizers" <<'P'
import json, os, sys
for name, of, hidden in (("model", "qwen2", 32), ("teacher", "llama3", 48), ("same_size", "llama3", 48)):
    tokenizer = json.load(open(f"{sys.argv[1]}/{of}.json"))["tokenizer"]
    os.mkdir("of-" + name)
    json.dump(tokenizer, open(f"of-{name}/tokenizer.json", "w"))
    size = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
    json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 716 if name == "same_size" else size, "hidden_size": hidden,
               "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
               "tie_word_embeddings": True, "eos_token_id": tokenizer["added_tokens"][1]["id"]}, open(name + ".json", "w"))
with open("rows.jsonl", "w") as f:
    for i in range(24):
        f.write(json.dumps({"prompt": f"the quick brown fox number {i} ", "completion": f"jumps over {7 * i} lazy dogs, it's raining 100%."}) + "\n")
P
for name in model teacher same_size; do "$temper" init --config $name.json --tokenizer of-$name --seed 3 --output $name > /dev/null || fail "init $name"; done
for method in gold uld; do
  own="distill.teacher=teacher distill.cross_tokenizer=$method data.eval=rows.jsonl train.eval_every=3"
  run $method $common $own
  run $method-lora $common $own adapter.method=lora adapter.rank=4
  run $method-sampled $common $own distill.strategy=on_policy rollout.max_new_tokens=6
  for name in $method $method-lora $method-sampled; do
    grep -q '"eval/distill_loss"' $name/metrics.jsonl || fail "$name: no eval/distill_loss"
    value $name/metrics.jsonl aligned_fraction | awk '{ n += 1; if ($1 <= 0) exit 1 } END { exit n == 3 ? 0 : 1 }' || fail "$name: aligned_fraction: $(value $name/metrics.jsonl aligned_fraction)"
  done
  "$temper" check distill $common $own output_dir=checked-$method > check.log || fail "check $method: $(grep -v ^pass check.log)"
  run whole-$method $common $own train.max_steps=60
  "$temper" distill $common $own train.max_steps=60 output_dir=stopped-$method > stopped.log 2>&1 &
  until_rows stopped-$method 2 $!
  kill -TERM $! 2> /dev/null
  wait $!
  run stopped-$method $common $own train.max_steps=60
  cmp whole-$method/final/model.safetensors stopped-$method/final/model.safetensors || fail "$method: a stopped run ends with other bits"
done
refuse 'token 280 is' distill.teacher=same_size
"$temper" check distill $common distill.teacher=same_size output_dir=x > check.log && fail "check passes a teacher with other tokens"
serve --model same_size
refuse "tokens have the SHA-256" "distill.teacher={url: $address}" distill.top_k=8
kill $!
grep -q '^fail *teacher .*token 280 is.*distill.cross_tokenizer' check.log || fail "check: $(grep teacher check.log)"
refuse 'under distill.strategy: logit or on_policy alone' distill.teacher=teacher distill.cross_tokenizer=gold distill.strategy=feature_pooling
cd ..
exit $bad
