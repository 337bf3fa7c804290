# temper check of reinforcement learning refuses what the run refuses, with its words, and nothing else.
source "$(dirname "$0")/common.sh" "$1"
source "$(dirname "$0")/checks.sh"
# of NAME VOCABULARY HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS HEAD_DIM: random weights in NAME/.
of() { local name=$1; shift; tiny_model "$@"; mv model "$name"; }
of three 62 48 48 2 3 3 16
of deeper 62 32 48 3 2 2 16
tiny_model 62 32 48 2 2 2 16
python3 - <<'P'
import json, random
random.seed(1)
ids = lambda n: [random.randrange(3, 61) for _ in range(n)]
with open("pairs.jsonl", "w") as f:
    for i in range(4):
        f.write(json.dumps({"prompt_ids": ids(4), "chosen_ids": ids(5), "rejected_ids": ids(6)}) + "\n")
with open("prompts.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": ids(4), "answer": "1"}) + "\n")
P
even_reward
even='rewards=[{command: [sh, even.sh], name: even}]'
rl="model.path=model data.train=prompts.jsonl output_dir=out rl.group_size=2 rl.prompts_per_rollout=2 rollout.max_new_tokens=4 train.max_steps=1"
# refused NAME WORDS ARGUMENTS...: the check of that name says the words, as does the run, which exits with 2.
refused() {
  local name=$1 words=$2
  shift 2
  rm -rf out
  check bad.json 2 "$@" && has bad.json "$name" fail "$words"
  "$temper" "$@" > run.log 2>&1
  [ $? = 2 ] && grep -qF -- "$words" run.log || fail "the run $*: $(cat run.log)"
}
# taken ARGUMENTS...: check and run take them.
taken() {
  rm -rf out
  check good.json 0 "$@"
  "$temper" "$@" > run.log 2>&1 || fail "the run $*: $(cat run.log)"
}

# mesh.tensor does not divide a critic: it may have other heads than the ranks divide.
"$temper" reward model.path=three data.train=pairs.jsonl output_dir=rm train.max_steps=1 > rm.log 2>&1 || fail "a reward model: $(cat rm.log)"
taken ppo $rl "$even" rl.group_size=1 ppo.critic=rm/final mesh.tensor=2 --nproc 2

# Who samples while it trains has a copy of the weights, and both at once.
rm -rf out
check turns.json 0 grpo $rl "$even"
check ahead.json 0 grpo $rl "$even" rl.max_staleness=2
check adapter.json 0 grpo $rl "$even" rl.max_staleness=1 adapter.method=lora adapter.rank=2
check lag.json 0 grpo $rl "$even" rl.max_staleness=2 rl.minibatches=2
python3 - <<'P' || fail "the memory of sampling ahead: $(cat turns.json ahead.json)"
import json
turns, ahead, adapter, lag = (json.load(open(f + ".json"))["plan"]["phases"] for f in ("turns", "ahead", "adapter", "lag"))
assert "sample" in turns and "sampler" not in turns["train"]["parts"], turns
both = ahead["sample and train"]["parts"]
assert "sample" not in ahead and "train" not in ahead, ahead
assert both["sampler"] == 2 * both["weights"], both  # of two batches that are begun
assert lag["sample and train"]["parts"]["sampler"] == both["weights"], lag
for part in ("cache", "packed"):
    assert both[part] == turns["sample"]["parts"][part], both
assert both["activations"] == turns["train"]["parts"]["activations"], both
assert 0 < adapter["sample and train"]["parts"]["sampler"] < both["weights"] / 2, adapter
P

# A reference that the ranks cannot divide, and one of another shape that would follow the policy.
refused reference "rl.reference: mesh.tensor" grpo $rl "$even" rl.beta=0.1 rl.reference=three mesh.tensor=2 --nproc 2
refused reference "preference.reference_model: mesh.tensor" dpo model.path=model data.train=pairs.jsonl output_dir=out train.max_steps=1 \
  preference.reference_model=three mesh.tensor=2 --nproc 2
taken grpo $rl "$even" rl.beta=0.1 rl.reference=deeper mesh.tensor=2 --nproc 2
# experts NAME NUMBER: a mixture of so many experts, two of them for a token.
experts() {
  cat > experts.json <<J
{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 62, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 24,
 "num_experts": $2, "num_experts_per_tok": 2, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2}
J
  "$temper" init --config experts.json --seed 3 --output "$1" > /dev/null || fail "init of $1"
}
experts four 4
experts five 5
refused reference "rl.reference: mesh.expert" grpo $rl "$even" model.path=four rl.beta=0.1 rl.reference=five mesh.expert=2 --nproc 2
taken grpo $rl "$even" model.path=four rl.beta=0.1 rl.reference=model mesh.expert=2 --nproc 2
refused reference "cannot follow the policy (rl.reference_update_every)" grpo $rl "$even" rl.beta=0.1 rl.reference=deeper rl.reference_update_every=1
cp -r model same
taken grpo $rl "$even" rl.beta=0.1 rl.reference=same rl.reference_update_every=1

# What rl.replay does not read is not asked for; what its rewards must be is.
printf '%s\n' '{"group": 0, "prompt_tokens": [3], "completion_tokens": [4], "reward": 1}' \
  '{"group": 0, "prompt_tokens": [3], "completion_tokens": [5], "reward": 0}' > replay.jsonl
replay="model.path=model output_dir=out rl.replay=replay.jsonl rl.group_size=2 rl.prompts_per_rollout=1 train.max_steps=1"
taken grpo $replay 'rewards=[{model: nowhere}, {command: [cat], name: cat}, {name: judge, judge: {model: nowhere, prompt: "{completion}"}}]'
taken grpo $replay
taken ppo $replay rl.beta=0.1
refused rl.replay "no \`rewards\`, which rl.reward_aggregation: normalize_then_sum" grpo $replay rl.reward_aggregation=normalize_then_sum
sed 's/"reward": \(.\)/"reward": \1, "rewards": {"even": 0.25}/' replay.jsonl > sums.jsonl
refused rl.replay "its \`rewards\` add up to 0.25" grpo $replay rl.replay=sums.jsonl rl.reward_aggregation=normalize_then_sum

# The schedule scales rates of groups in proportion to the critic's.
groups='optimizer.groups=[{match: "model*", learning_rate: 1e-4}]'
refused config "ppo.critic_learning_rate" ppo $rl "$even" rl.group_size=1 ppo.critic_learning_rate=0 "$groups"
taken ppo $rl "$even" rl.group_size=1 ppo.critic_learning_rate=0

# Words of an environment, tools and agents need a tokenizer, and some a chat template.
cat > env.sh <<'S'
read -r l; echo '{"messages": []}'; read -r l; echo '{"messages": [], "done": false, "rewards": 1}'
S
tool='environment.tools=[{name: add, description: adds, parameters: {type: object}, command: [cat]}]'
lacks="its words need a tokenizer, and the model has none"
for words in environment.name=frozen_lake 'environment.command=[sh, env.sh]' "$tool" 'environment.openai.command=[sh, env.sh]'; do
  refused environment "$lacks" grpo $rl "$even" "$words"
done
rm -r model
json_model
echo '{"prompt": "What is 1 + 1?"}' > prompts.jsonl
rm -rf out
check bad.json 2 grpo $rl 'environment.command=[sh, env.sh]' && has bad.json environment fail "did you mean \`reward\`"
check bad.json 2 grpo $rl 'environment.command=[sh, -c, "exit 4"]' && has bad.json environment fail
check good.json 0 grpo $rl "$even" "$tool" && has good.json environment pass
rm model/tokenizer_config.json
for words in "$tool" 'environment.openai.command=[sh, env.sh]'; do
  refused environment "and the model directory has none" grpo $rl "$even" "$words"
done
check good.json 0 grpo $rl environment.name=frozen_lake && has good.json environment pass
exit $bad
