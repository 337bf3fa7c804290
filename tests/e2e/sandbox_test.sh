#!/usr/bin/env bash
# Sandboxes from the command line: the example of a coding environment, whose tests run what the model writes; and where
# the system has no sandboxes, the cause, before anything runs. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
ln -s "$TEMPER_SOURCE_DIR/examples" .
config=$TEMPER_SOURCE_DIR/configs/coding.yaml

python3 examples/coding_model.py coding || fail "the model of the example"
"$temper" init --config coding/config.json --tokenizer coding --output coding/model > /dev/null || fail "init"
"$temper" sft model.path=coding/model data.train=coding/sft.jsonl output_dir=runs/coding-sft train.max_steps=40 \
  train.batch_size=16 optimizer.learning_rate=3e-3 optimizer.schedule=constant > /dev/null || fail "sft"

# refused COMMAND...: it ends with the cause, and no program has run.
refused() {
  local status=0
  "$@" > out 2> err || status=$?
  [ $status = 2 ] && grep -q "environment.sandbox: not possible here: " err || fail "$*: $status $(cat err)"
  [ ! -e runs/coding ] || fail "$*: it ran"
}
# without COMMAND...: on a system that gives no user namespaces.
without() { unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"' sh "$@"; }
if "$temper" check grpo "$config" > out 2> err; then
  refused without "$temper" check grpo "$config"
  grep -q "sysctl user.max_user_namespaces is 0" err || fail "the cause: $(cat err)"
  refused without "$temper" grpo "$config"
else
  echo "no sandboxes here: $(cat err)"
  refused "$temper" check grpo "$config"
  refused "$temper" grpo "$config"
  exit $bad
fi

"$temper" grpo "$config" train.max_steps=1 train.eval_every=0 data.eval='[]' > out 2>&1 || fail "grpo: $(tail -5 out)"
python3 - <<'P' || fail "the rewards of the coding environment: $(head -3 runs/coding/rollouts/step-1.jsonl)"
import json
rows = [json.loads(line) for line in open("runs/coding/rollouts/step-1.jsonl")]
metrics = json.loads(open("runs/coding/metrics.jsonl").readline())
assert len(rows) == 64 and all(0 <= row["reward"] <= 1 for row in rows)
assert sum(row["reward"] == 1 for row in rows) > 4 and sum(row["reward"] < 1 for row in rows) > 4
assert metrics["environment_crashes"] == metrics["environment_timeouts"] == metrics["environment_malformed"] == 0
P
zero_diffs runs/coding/metrics.jsonl

# The environment itself: shares of tests, code that does not end or prints, and names that lead out of the directory.
cat > turns.jsonl <<'J'
{"episode": 1, "type": "reset", "row": {"files": {"f.py": "def f(a, b): return a - b\n"}, "tests": [["f(2, 3)", 5], ["f(2, 2)", 0]]}}
{"episode": 1, "type": "step", "completion": "read f.py", "tool_calls": []}
{"episode": 1, "type": "step", "completion": "write f.py\nprint(5)\ndef f(a, b): return a + b\n", "tool_calls": []}
{"episode": 1, "type": "step", "completion": "write f.py\nimport os\nos._exit(0)\n", "tool_calls": []}
{"episode": 1, "type": "step", "completion": "write ../f.py\n", "tool_calls": []}
{"episode": 1, "type": "step", "completion": "write f.py\ndef f(a, b): return 5 if b == 3 else 0\n", "tool_calls": []}
J
python3 examples/coding_environment.py < turns.jsonl > answers.jsonl || fail "coding_environment.py"
python3 - <<'P' || fail "its answers: $(cat answers.jsonl)"
import json
answers = [json.loads(line) for line in open("answers.jsonl")]
assert answers[1]["messages"][0]["content"] == "def f(a, b): return a - b\n" and not answers[1]["done"]
assert [a.get("reward", 0) for a in answers[2:]] == [0.5, -0.5, 0, 1] and answers[-1]["done"]
assert "Answer with" in answers[4]["messages"][0]["content"]
P
exit $bad
