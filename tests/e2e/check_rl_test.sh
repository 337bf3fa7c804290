# temper check of reinforcement learning refuses what the run refuses, with its words, and nothing else.
source "$(dirname "$0")/common.sh" "$1"
source "$(dirname "$0")/checks.sh"
# of NAME VOCABULARY HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS HEAD_DIM: random weights in NAME/.
of() { local name=$1; shift; tiny_model "$@"; mv model "$name"; }
of three 61 48 48 2 3 3 16
of deeper 61 32 48 3 2 2 16
of model 61 32 48 2 2 2 16
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
  check bad.json 2 "$@" && has bad.json "$name" fail "$words"
  rm -rf out
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
exit $bad
