#!/usr/bin/env bash
# Preferences from outside: every verb on ids, ranks, resuming, the reward model as a reward, errors. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
small_model
python3 - <<'P'
import json, random
rng = random.Random(4)
ids = lambda n: [rng.randrange(3, 61) for _ in range(n)]
with open("pairs.jsonl", "w") as pairs, open("single.jsonl", "w") as single, open("prompts.jsonl", "w") as prompts:
    for i in range(13):
        prompt, shared = ids(rng.randrange(1, 9)), ids(i % 3)
        sides = [shared + ids(rng.randrange(1, 9)) + [2] for _ in range(2)]
        pairs.write(json.dumps({"prompt_ids": prompt, "chosen_ids": sides[0], "rejected_ids": sides[1]}) + "\n")
        for side, label in zip(sides, (True, False)):
            single.write(json.dumps({"prompt_ids": prompt, "completion_ids": side, "label": label}) + "\n")
        prompts.write(json.dumps({"prompt_ids": prompt}) + "\n")
P
common="model.path=model data.train=pairs.jsonl train.batch_size=5 train.max_steps=6 optimizer.learning_rate=1e-2"
# numbers DIR: its metrics, one line a step: loss and accuracy.
numbers() { python3 -c "
import json, sys
for line in open('$1/metrics.jsonl'):
    row = json.loads(line)
    if 'loss' in row: print('%.4f' % row['loss'], row.get('accuracy'), row['tokens'])"; }
# run NAME ARGUMENTS...: a verb that has to end well.
run() { local name=$1; shift; "$temper" "$@" output_dir=$name > $name.log 2>&1 || fail "$name: $(tail -2 $name.log)"; }

for verb in dpo orpo reward; do
  run $verb $verb $common data.eval=pairs.jsonl train.eval_every=3 train.save_every=2 train.keep_best.metric=eval/loss
  grep -q '"eval/accuracy"' $verb/metrics.jsonl || fail "$verb: no eval/accuracy"
  run $verb-ranks $verb --nproc 2 $common
  [ "$(numbers $verb)" = "$(numbers $verb-ranks)" ] || fail "$verb: two ranks: $(numbers $verb | paste - <(numbers $verb-ranks))"
  cp -r $verb $verb-again
  "$temper" $verb $common data.eval=pairs.jsonl train.eval_every=3 train.save_every=2 train.keep_best.metric=eval/loss output_dir=$verb-again | grep -q complete || fail "$verb: not complete"
done
for loss in hinge ipo robust simpo kto; do run $loss dpo $common preference.loss=$loss; done
run single dpo $common data.train=single.jsonl preference.loss=kto
run kto-ranks dpo --nproc 2 $common preference.loss=kto
[ "$(numbers kto)" = "$(numbers kto-ranks)" ] || fail "kto: two ranks"
run before dpo $common preference.reference=precomputed
[ "$(numbers dpo)" = "$(numbers before)" ] || fail "precomputed: other numbers"
run before-ranks dpo --nproc 2 $common preference.reference=precomputed
cmp -s <(tail -c 200 before/reference_logps.safetensors) <(tail -c 200 before-ranks/reference_logps.safetensors) ||
  fail "precomputed on two ranks: other numbers"

# Stopped after two steps and gone on: the same numbers.
run parts dpo $common train.max_steps=2 optimizer.schedule=constant
run parts dpo $common optimizer.schedule=constant
run whole dpo $common optimizer.schedule=constant
[ "$(numbers parts)" = "$(numbers whole)" ] || fail "resumed: $(numbers parts | paste - <(numbers whole))"

# A reward model goes on from its own directory, and rewards completions.
run further reward $common model.path=reward/final data.eval=pairs.jsonl
"$temper" eval --model further/final --input pairs.jsonl --pairs --json > ranked.json || fail "eval --pairs: $?"
python3 - <<'P' || fail "eval --pairs and the run's own evaluation differ: $(cat ranked.json)"
import json
ranked, last = json.load(open("ranked.json")), [json.loads(line) for line in open("further/metrics.jsonl")][-1]
for name in ("accuracy", "margin"):
    assert abs(ranked[name]["mean"] - last["eval/" + name]) < 1e-9, name
P
"$temper" eval --model model --input prompts.jsonl --reward-model reward/final --max-new-tokens 4 --json \
  > judged.json || fail "eval --reward-model: $?"
run grpo grpo model.path=model data.train=prompts.jsonl "rewards=[{model: reward/final, name: rm, weight: 2}]" train.max_steps=2 \
  rl.prompts_per_rollout=4 rl.group_size=4 rollout.max_new_tokens=8
grep -q '"rewards/rm"' grpo/metrics.jsonl || fail "no rewards/rm"

# With LoRA: the adapter ranks, rewards and merges as what it is merged into does.
run lora reward $common adapter.method=lora adapter.rank=4
"$temper" eval --model model --adapter lora/final --input pairs.jsonl --pairs --json > adapter.json || fail "eval --pairs --adapter: $?"
"$temper" export --model model --adapter lora/final --output merged > export.log || fail "export of a reward adapter: $?"
"$temper" eval --model merged --input pairs.jsonl --pairs --json > merged.json || fail "eval --pairs of the merged: $?"
python3 - <<'P' || fail "an adapter and its merged model rank differently: $(cat adapter.json merged.json)"
import json
a, b = json.load(open("adapter.json")), json.load(open("merged.json"))
assert abs(a["margin"]["mean"] - b["margin"]["mean"]) < 1e-5
P
run grpo-adapter grpo model.path=model data.train=prompts.jsonl "rewards=[{model: lora/final, name: rm}]" train.max_steps=1 \
  rl.prompts_per_rollout=4 rl.group_size=4 rollout.max_new_tokens=8

# refuse TEXT ARGUMENTS...: exit 2, one line that says TEXT.
refuse() {
  local text=$1 status=0; shift
  "$temper" "$@" > out 2> err || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "expected $text: status $status: $(cat err)"
}
refuse 'no scalar head' grpo model.path=model data.train=prompts.jsonl "rewards=[{model: model, name: rm}]" output_dir=x
(mkdir odd && cd odd && odd_model)
refuse 'tokens, the policy' grpo model.path=odd/model data.train=prompts.jsonl "rewards=[{model: reward/final}]" output_dir=x
echo '{"prompt_ids": [5], "chosen_ids": [6], "rejected_ids": [6]}' > equal.jsonl
refuse 'equal.jsonl:1: `chosen_ids` and `rejected_ids` are equal' dpo $common data.train=equal.jsonl output_dir=x
echo '{"prompt_ids": [5], "chosen_ids": [6]}' > half.jsonl
refuse 'half.jsonl:1: the pair has no `rejected_ids`' orpo $common data.train=half.jsonl output_dir=x
refuse 'preference.reference_model: a vocabulary of 331' dpo $common preference.reference_model=odd/model output_dir=x
refuse 'single.jsonl:1: the row has' dpo $common data.train=single.jsonl output_dir=x
refuse 'did you mean `sigmoid`' dpo $common preference.loss=sigmod output_dir=x
refuse 'half.jsonl:1: the pair has no `rejected_ids`' dpo $common data.eval=half.jsonl train.eval_every=6 output_dir=x
# A file of rollouts is never its own output, and what an environment said makes no pair.
head -4 grpo/rollouts/step-1.jsonl > mine.jsonl && cp mine.jsonl kept.jsonl
refuse 'would be lost' data pairs --rollouts mine.jsonl --output mine.jsonl
cmp -s mine.jsonl kept.jsonl || fail "data pairs overwrites its rollouts"
sed 's/"logprobs"/"completion_mask": [1, 0], "logprobs"/' mine.jsonl > masked.jsonl
refuse '`completion_mask` marks tokens' data pairs --rollouts masked.jsonl --output x.jsonl
exit $bad
