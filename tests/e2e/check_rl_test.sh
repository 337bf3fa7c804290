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
exit $bad
