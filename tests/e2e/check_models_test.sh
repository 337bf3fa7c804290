# temper check of the models that a run has beside the policy: it refuses what the run refuses, with the run's words, and
# the run refuses it before its first step.
source "$(dirname "$0")/common.sh" "$1"
source "$(dirname "$0")/checks.sh"
python3 "$(dirname "$0")/images_make.py" "$TEMPER_SOURCE_DIR" || exit 1
small_model
mv model blind
cp text/tokenizer*.json text/generation_config.json blind
# refused NAME WORDS ARGUMENTS...: check refuses it by that name, and the run without a step, both with these words.
refused() {
  local name=$1 words=$2
  shift 2
  rm -rf refused
  check refused.json 2 "$@" output_dir=refused && has refused.json "$name" fail "$words"
  "$temper" "$@" output_dir=refused > refused.log 2>&1
  [ $? = 2 ] && grep -qF "$words" refused.log || fail "$*: expected \`$words\`: $(cat refused.log)"
  [ ! -s refused/metrics.jsonl ] || fail "$*: a step was made"
}
# accepted ARGUMENTS...: check and the run take it.
accepted() {
  rm -rf accepted
  check accepted.json 0 "$@" output_dir=accepted
  "$temper" "$@" output_dir=accepted > accepted.log 2>&1 || fail "$*: $(cat accepted.log)"
}

# Rows with images, and a model that does not see them.
python3 - <<'P'
import json
ask = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "how many?"}]}]
plain = [{"role": "user", "content": "how many?"}]
say = lambda text: [{"role": "assistant", "content": text}]
def write(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
image = {"images": ["a.png"]}
for name, prompt, more in [("seen", ask, image), ("plain", plain, {})]:
    write(name + "_rows.jsonl", [{"messages": prompt + say(text)} | more for text in ("one", "two", "six", "ten")])
    write(name + "_pairs.jsonl", [{"prompt": prompt, "chosen": say(text), "rejected": say("no")} | more for text in ("one", "two", "six", "ten")])
    write(name + "_prompts.jsonl", [{"prompt": prompt, "answer": text} | more for text in ("one", "two", "six", "ten")])
P
even_reward
base="model.path=text train.max_steps=1 train.batch_size=2 metrics.sinks=[jsonl]"
blind="which does not see the images of"
dpo="dpo $base preference.reference_model=blind"
for reference in model precomputed; do
  refused data.train "preference.reference_model: found blind, $blind seen_pairs.jsonl:1" $dpo preference.reference=$reference data.train=seen_pairs.jsonl
done
refused data.eval "preference.reference_model: found blind, $blind seen_pairs.jsonl:1" \
  $dpo preference.reference=model data.train=plain_pairs.jsonl data.eval=seen_pairs.jsonl
accepted $dpo preference.reference=model data.train=plain_pairs.jsonl
accepted dpo $base preference.reference=model preference.reference_model=text data.train=seen_pairs.jsonl
rl=(model.path=text train.max_steps=1 metrics.sinks=[jsonl] rl.prompts_per_rollout=2 rollout.max_new_tokens=3 'rewards=[{name: even, command: [sh, even.sh]}]')
grpo=(grpo "${rl[@]}" rl.group_size=2 rl.beta=0.1)
refused data.train "rl.reference: found blind, $blind seen_prompts.jsonl:1" "${grpo[@]}" rl.reference=blind data.train=seen_prompts.jsonl
accepted "${grpo[@]}" rl.reference=text data.train=seen_prompts.jsonl
mkdir kept && cp -r accepted/rollouts kept
refused rl.replay "rl.reference: found blind, $blind kept/rollouts/step-1.jsonl:1" "${grpo[@]}" rl.reference=blind rl.replay=kept/rollouts/step-1.jsonl
"$temper" reward model.path=blind data.train=plain_pairs.jsonl train.max_steps=1 train.batch_size=2 output_dir=rm > rm.log 2>&1 \
  || fail "reward: $(cat rm.log)"
refused data.train "ppo.critic: found rm/final, $blind seen_prompts.jsonl:1" ppo "${rl[@]}" ppo.critic=rm/final data.train=seen_prompts.jsonl
accepted ppo "${rl[@]}" ppo.critic=rm/final data.train=plain_prompts.jsonl
distill="distill $base distill.teacher=blind"
for strategy in logit feature_pooling on_policy; do
  refused data.train "distill.teacher: found blind, $blind seen_rows.jsonl:1" $distill distill.strategy=$strategy data.train=seen_rows.jsonl
done
refused data.train "distill.cross_tokenizer: found a teacher that reads tokens of its own, $blind seen_rows.jsonl:1" \
  $distill distill.cross_tokenizer=gold data.train=seen_rows.jsonl
refused data.eval "distill.teacher: found blind, $blind seen_rows.jsonl:1" $distill data.train=plain_rows.jsonl data.eval=seen_rows.jsonl
accepted $distill data.train=plain_rows.jsonl

# A file of the teacher's numbers.
"$temper" init --config config.json --seed 4 --output other > init.log 2>&1 || fail "init: $(cat init.log)"
for i in 5 6 7 8; do echo "{\"input_ids\": [$i, 9, 10, 11], \"labels\": [-100, 9, 10, 11]}"; done > ids.jsonl
for i in 5 6 7 8; do echo "{\"prompt_ids\": [$i, 9]}"; done > asked.jsonl
for i in 5 6 27; do echo "{\"input_ids\": [$i, 9, 10, 11], \"labels\": [-100, 9, 10, 11]}"; done > more.jsonl
ids="distill model.path=blind train.max_steps=1 train.batch_size=2 metrics.sinks=[jsonl]"
file=distill.teacher_logprobs=numbers.safetensors
"$temper" distill --precompute ${ids#distill } data.train=ids.jsonl distill.teacher=other distill.top_k=8 $file output_dir=x > precompute.log 2>&1 \
  || fail "--precompute: $(cat precompute.log)"
echo garbage > garbage.safetensors
accepted $ids $file data.train=ids.jsonl distill.top_k=8
refused teacher nowhere.safetensors $ids distill.teacher_logprobs=nowhere.safetensors data.train=ids.jsonl
refused teacher garbage.safetensors $ids distill.teacher_logprobs=garbage.safetensors data.train=ids.jsonl
refused teacher "distill.top_k asks for 20" $ids $file data.train=ids.jsonl distill.top_k=20
refused teacher "other predicts, distill.teacher is" $ids $file data.train=ids.jsonl distill.teacher=blind
refused data.train "more.jsonl:3: numbers.safetensors: a row's token is not in it" $ids $file data.train=more.jsonl
refused data.eval "more.jsonl:3: numbers.safetensors: a row's token is not in it" $ids $file data.train=ids.jsonl data.eval=more.jsonl

# An adapter on the head, where whole distributions are compared.
head="data.train=ids.jsonl adapter.method=lora adapter.rank=2 adapter.target_modules=[q_proj,lm_head]"
words="adapter.target_modules: lm_head is not adapted where whole distributions are compared"
refused teacher "$words" $ids $head distill.teacher=other
[ ! -e refused ] || fail "the run begins output_dir"
refused teacher "$words" $ids $head distill.teacher=other distill.strategy=on_policy rollout.max_new_tokens=3 data.train=asked.jsonl
refused teacher "$words" $ids $head $file
accepted $ids $head distill.teacher=other distill.strategy=feature_pooling
"$temper" sft model.path=blind $head train.max_steps=1 output_dir=adapted > adapted.log 2>&1 || fail "sft: $(cat adapted.log)"
refused teacher "$words" $ids data.train=ids.jsonl adapter.path=adapted/final distill.teacher=other

# And where ranks divide the vocabulary, which they do not where a strategy reads whole layers.
divided="adapter.target_modules: lm_head takes no adapter where ranks divide the vocabulary (mesh.tensor)"
tiny_model 64 32 48 2 4 2 8
check divided.json 2 sft model.path=model $head --nproc 2 mesh.tensor=2 output_dir=divided && has divided.json adapter fail "$divided"
has divided.json mesh pass
check divided.json 0 ${ids/blind/model} $head distill.teacher=model distill.strategy=feature_pooling --nproc 2 mesh.tensor=2 output_dir=divided
"$temper" sft --nproc 2 model.path=model $head mesh.tensor=2 output_dir=divided > divided.log 2>&1
[ $? = 2 ] && grep -qF "$divided" divided.log || fail "divided: $(cat divided.log)"
exit $bad
