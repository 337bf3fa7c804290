#!/usr/bin/env bash
# What temper check finds in rows of text: beginnings, prompts that are evaluated on, what is trained; data.balance and
# its metrics. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
json_model
python3 - <<'P'
import json
tokenizer = json.load(open("model/tokenizer.json"))
bos = next(t for t in tokenizer["added_tokens"] if t["content"] == "<|end|>")
part = [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": part, "pair": part + [{"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [bos["id"]], "tokens": ["<|end|>"]}}}
json.dump(tokenizer, open("model/tokenizer.json", "w"))
with open("rows.jsonl", "w") as out:
    for i in range(12):
        asked = ("What is %d + 4?" if i % 3 else "Write a poem about %d.") % i
        out.write(json.dumps({"prompt": asked, "completion": " it is %d" % i, "kind": "ab"[i % 3 == 0]}) + "\n")
with open("eval.jsonl", "w") as out:
    out.write(json.dumps({"prompt": "What is 1 + 4?", "completion": " another"}) + "\n")
    out.write(json.dumps({"prompt": "What is 77 + 4?", "completion": " new"}) + "\n")
with open("twice.jsonl", "w") as out: out.write(json.dumps({"text": "<|end|><|end|>twice"}) + "\n" + json.dumps({"text": "once"}) + "\n")
with open("chats.jsonl", "w") as out: out.write(json.dumps({"messages": [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": " It is 3."}]}) + "\n")
with open("prompts.jsonl", "w") as out:
    for i in range(6): out.write(json.dumps({"prompt": "say %d" % i, "kind": "ab"[i % 2]}) + "\n")
P
has() {
  python3 - "$@" <<'P' || fail "$*: $(cat "$1")"
import json, sys
check = next(c for c in json.load(open(sys.argv[1]))["checks"] if c["name"] == sys.argv[2])
assert check["status"] == sys.argv[3], check
assert len(sys.argv) < 5 or sys.argv[4] in check["message"], check
P
}
check() { local out=$1; shift; "$temper" check sft model.path=model output_dir=out train.batch_size=4 "$@" --json > "$out" 2> err || fail "check $*: $? $(cat err "$out")"; }
check good.json data.train=rows.jsonl train.max_steps=40 optimizer.warmup_steps=10
has good.json bos pass 'every row begins with `<|end|>`, once'
has good.json learning_rate pass '10 steps of warm-up'
check twice.json data.train=twice.jsonl && has twice.json bos warn '1 of 2 rows begin with `<|end|>` twice, the first is twice.jsonl:1'
check chats.json data.train=chats.jsonl && has chats.json bos warn '1 of 1 rows begin without `<|end|>`'
check prompts.json data.train=rows.jsonl data.eval=eval.jsonl && has prompts.json data.overlap warn '1 of 2 evaluation rows have the prompt of a training row, with another answer: eval.jsonl:1 that of rows.jsonl:2'
check short.json data.train=rows.jsonl train.max_steps=4 optimizer.warmup_steps=10 && has short.json learning_rate warn 'is never reached'

check shown.json data.train=rows.jsonl --show 2
python3 -c '
import json
shown = json.load(open("shown.json"))["shown"]
assert shown["where"] == "rows.jsonl:2" and shown["paths"][0]["text"].startswith("<|end|>What is 1 + 4? it is 1"), shown
path = shown["paths"][0]
assert len(path["tokens"]) == len(path["trained"]) and 0 < sum(path["trained"]) < len(path["tokens"]), path' || fail "--show: $(cat shown.json)"
"$temper" check sft model.path=model output_dir=out data.train=rows.jsonl train.max_steps=40 --show 2 > shown.txt && grep -qF '<|end|>What is 1 + 4?⟦ it is 1' shown.txt &&
  grep -q '^learning rate, step 1 to 40' shown.txt || fail "--show: $(tail -5 shown.txt)"
"$temper" check sft model.path=model output_dir=out data.train=rows.jsonl --show 99 > /dev/null 2> err; [ $? = 2 ] && grep -q 'data.train has 12 rows' err || fail "--show 99: $(cat err)"

# Rows of one prompt are held out together: never more than half of them, and a share far off is told, by the run as well.
python3 -c '
import json
for i in range(100): print(json.dumps({"prompt": "say %d" % (0 if i < 95 else i), "completion": " %d" % i}))' > skewed.jsonl
check skewed.json data.train=skewed.jsonl data.validation_fraction=0.3 seed=3 train.max_steps=2 &&
  has skewed.json data.validation_fraction warn 'rows are held out, where 30 were to be'
"$temper" sft model.path=model output_dir=skewed data.train=skewed.jsonl data.validation_fraction=0.3 seed=3 train.max_steps=2 > skewed.log 2>&1 &&
  grep -q 'skewed.jsonl: [1-5] of 100 rows are held out' skewed.log || fail "a skewed set: $(cat skewed.log)"

# Control characters of rows and of file names are shown, and do nothing to the terminal.
odd=$'odd\e]0;t\a\n.jsonl'
printf '%s\n' '{"prompt": "a\u001b[2Jb", "completion": " \u009bc"}' '{"prompt": "a\u001b[2Jb", "completion": " \u009bc"}' > "$odd"
"$temper" check sft model.path=model output_dir=out data.train="[{path: \"odd\\e]0;t\\a\\n.jsonl\"}]" train.max_steps=4 --show 1 > odd.txt || fail "check of control characters: $(cat -v odd.txt)"
grep -qF 'odd\x1b]0;t\x07\n.jsonl:2 equals' odd.txt && grep -qF 'a\x1b[2Jb' odd.txt && ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' odd.txt ||
  fail "control characters: $(cat -v odd.txt)"

# Text prompts of a model with a chat template, special tokens that rows spell, and tools that the template leaves out:
# check says so, and so does the run; data.prompts_as: user reads the prompts as the user's messages.
check text.json data.train=rows.jsonl train.max_steps=2 && has text.json data.prompts_as warn '12 rows have a text prompt (first: rows.jsonl:1), which is read without the model'
check user.json data.train=rows.jsonl data.prompts_as=user
! grep -q '"data.prompts_as"' user.json || fail "data.prompts_as: user: $(cat user.json)"
has twice.json data.control_tokens warn '1 row contains the text of a special token (first: twice.jsonl:1, `<|end|>`), tokenized as that token'
check quoted.json data.train=twice.jsonl data.control_tokens=text && has quoted.json data.control_tokens pass 'tokenized as ordinary text'
has quoted.json bos pass 'every row begins with `<|end|>`, once'
"$temper" tokenize --model model --input rows.jsonl --prompts-as user --output user.jsonl 2> err && "$temper" data convert rows.jsonl --to messages --output converted.jsonl > log 2>&1 &&
  "$temper" tokenize --model model --input converted.jsonl --output converted.ids.jsonl 2> err || fail "prompts as messages: $(cat err log)"
python3 - <<'P' || fail "a prompt that is the user's message: $(head -1 user.jsonl converted.ids.jsonl)"
import json
tokens = lambda name: [json.loads(line)["tokens"] for line in open(name)]
assert len(tokens("user.jsonl")) == 12 and tokens("user.jsonl") == tokens("converted.ids.jsonl")
P
python3 - <<'P'
import json
call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
tools = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}}]
with open("tools.jsonl", "w") as out:
    for i in range(4):
        out.write(json.dumps({"tools": tools, "messages": [{"role": "user", "content": "add %d" % i}, {"role": "assistant", "content": "", "tool_calls": [call]}]}) + "\n")
P
echo '{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}' > plain.jinja
echo '{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}' > calls.jinja
"$temper" check sft model.path=model output_dir=out data.train=tools.jsonl data.chat_template=plain.jinja --json > tools.json 2> err
[ $? = 2 ] || fail "tools that are left out: $(cat tools.json err)"
has tools.json tools fail 'leaves out the `tools` of 4 rows (the first is tools.jsonl:1) and the `tool_calls` of 4 rows (the first is tools.jsonl:1): turns with calls alone'
check calls.json data.train=tools.jsonl data.chat_template=calls.jinja
! grep -q '"tools"' calls.json || fail "tools that are written: $(cat calls.json)"
said() {  # WARNING ARGUMENT...: what a run prints
  local warning=$1; shift
  rm -rf said; "$temper" sft model.path=model train.max_steps=1 train.batch_size=2 output_dir=said "$@" > log 2>&1 || fail "sft $*: $(tail -3 log)"
  grep -qF -- "$warning" log || fail "not said: \"$warning\": $(cat log)"
}
said 'the chat template leaves out the `tools` of 4 rows' data.train=tools.jsonl data.chat_template=plain.jinja
said '1 row contains the text of a special token' data.train=twice.jsonl
said '12 rows have a text prompt' data.train=rows.jsonl
! grep -q 'temper chat' log && grep -q 'temper generate' log || fail "a chat is suggested that was not trained: $(tail -5 log)"
said 'temper chat' data.train=rows.jsonl data.prompts_as=user
! grep -q 'text prompt' log && grep -q -- '--prompts-as user --perplexity' log || fail "data.prompts_as: user: $(tail -5 log)"
"$temper" eval --model said/final --input rows.jsonl --prompts-as user --perplexity > log 2>&1 || fail "eval of prompts as messages: $(cat log)"

# Sources with columns of their own, by path; sets to evaluate on of which max_length leaves nothing.
echo '{"extra": {"asked": "What is 3 + 3?"}, "reward_model": {"ground_truth": " 6"}}' > nested.jsonl
check nested.json "data.train=[{path: rows.jsonl}, {path: nested.jsonl, columns: {prompt: extra.asked, completion: reward_model.ground_truth}}]" &&
  has nested.json data.train pass '13 rows'
"$temper" check sft model.path=model output_dir=out data.train=nested.jsonl data.columns='prompt=extra.asked completion=reward_model.ground_truth' > log || fail "columns as pairs: $(cat log)"
for columns in '{prompt: extra.asked, completion: reward_model.ground_truth}' 'prompt=extra.asked completion=reward_model.ground_truth'; do
  "$temper" tokenize --model model --input nested.jsonl --columns "$columns" --output nested.ids.jsonl 2> err && grep -q 'What is 3 + 3? 6' nested.ids.jsonl || fail "--columns $columns: $(cat err)"
done
echo '{"prompt": "a long prompt that fills the length by itself", "chosen": " yes", "rejected": " no"}' > long.jsonl
echo '{"prompt": "1", "chosen": " yes", "rejected": " no"}' > short.jsonl
long="model.path=model train.max_steps=1 train.batch_size=1 data.train=short.jsonl data.eval=[short.jsonl,long.jsonl] data.max_length=8 output_dir=long"
for verb in 'check dpo' dpo; do
  "$temper" $verb $long > log 2>&1; [ $? = 2 ] && grep -q 'every row is left out' log || fail "$verb of an evaluation set that is cut to nothing: $(cat log)"
done
[ ! -e long/metrics.jsonl ] || fail "the run began"

# A run that an earlier version began, whose checkpoints do not say by which rules rows are drawn and held out, goes on
# by those that it had, and says so.
begun() { "$temper" sft model.path=model 'data.train=[{path: rows.jsonl, weight: 1}, {path: twice.jsonl, weight: 1}]' data.validation_fraction=0.3 train.batch_size=2 \
  train.max_steps=4 train.save_every=2 train.keep_checkpoints=9 output_dir=begun > log 2>&1 || fail "sft: $(tail -3 log)"; }
begun; ! grep -q 'with an earlier version' log && grep -q 'drawn equally often, as their weights are equal' log || fail "a new run: $(cat log)"
rm -rf begun/final begun/checkpoints/step-4
python3 - <<'P'
import json
name = "begun/checkpoints/step-2/state.json"
state = json.load(open(name))
del state["row_rules"], state["hash"]
json.dump(state, open(name, "w"))
P
begun; grep -q 'with an earlier version: rows are held out by their lines.* in proportion to their rows' log || fail "a run of an earlier version: $(cat log)"
! grep -q row_rules begun/checkpoints/step-4/state.json || fail "its next checkpoint: $(cat begun/checkpoints/step-4/state.json)"

# data.balance: which rows are trained on, and metrics by group.
check balanced.json data.train=rows.jsonl data.balance.mode=under data.balance.field=kind && has balanced.json data.balance pass 'a 4 of 8, b 4 of 4'
has balanced.json data.train pass '8 rows'
check domains.json data.train=rows.jsonl data.balance.mode=over && has domains.json data.balance pass 'mathematics 8 of 8, creative 8 of 4'
check report.json data.train=rows.jsonl data.balance.mode=report data.balance.field=kind && has report.json data.balance pass 'rows of a 8, b 4; they stay as they are'
run="model.path=model train.max_steps=2 train.batch_size=4 metrics.sinks=[jsonl]"
"$temper" sft $run data.train=rows.jsonl data.balance.mode=under data.balance.field=kind output_dir=sft > log 2>&1 || fail "sft: $(tail -3 log)"
"$temper" sft --nproc 2 $run data.train=rows.jsonl data.balance.mode=under data.balance.field=kind output_dir=ranks > log 2>&1 || fail "sft on two ranks: $(tail -3 log)"
"$temper" sft $run data.train=rows.jsonl output_dir=plain > log 2>&1 || fail "sft: $(tail -3 log)"
"$temper" sft $run data.train=rows.jsonl data.balance.mode=report output_dir=report > log 2>&1 || fail "sft: $(tail -3 log)"
even_reward
"$temper" grpo $run data.train=prompts.jsonl data.balance.mode=report data.balance.field=kind rl.group_size=2 rl.prompts_per_rollout=4 rollout.max_new_tokens=4 data.eval=prompts.jsonl \
  'rewards=[{name: even, command: [sh, even.sh]}]' output_dir=grpo > log 2>&1 || fail "grpo: $(tail -3 log)"
python3 - <<'P' || fail "metrics by group: $(tail -1 sft/metrics.jsonl) $(tail -1 grpo/metrics.jsonl)"
import json
rows = lambda run: [json.loads(line) for line in open(run + "/metrics.jsonl")]
for row, ranks in zip(rows("sft"), rows("ranks")):
    groups = {k: v for k, v in row.items() if k.startswith("group_loss/")}
    assert set(groups) <= {"group_loss/a", "group_loss/b"} and min(groups.values()) - 1e-6 <= row["loss"] <= max(groups.values()) + 1e-6, row
    assert all(abs(ranks[k] - v) < 1e-5 for k, v in groups.items()), (row, ranks)
assert not any(k.startswith("group_") for row in rows("plain") for k in row)
assert [r["loss"] for r in rows("plain")] == [r["loss"] for r in rows("report")]
assert any("group_loss/mathematics" in r for r in rows("report")), rows("report")
for row in rows("grpo"):
    prefix = "eval/" if "eval/rows" in row else ""
    groups = [v for k, v in row.items() if k.startswith(prefix + "group_reward/")]
    assert groups and min(groups) - 1e-6 <= row[prefix + "reward_mean"] <= max(groups) + 1e-6, row
assert "eval/group_reward/a" in rows("grpo")[-1], rows("grpo")[-1]
P
grep -q 'loss by group' sft/report.html && grep -q 'reward by group' grpo/report.html || fail "the report has no curves by group"
grep -q '"rows":"[ab]"' grpo/rollouts/step-1.jsonl || fail "rollouts do not name the group"

# The same of other verbs and of evaluations, whose rows may be in no group; on two ranks, and without a change of any
# loss.
python3 - <<'P'
import json
for name, fields in ("pairs", ("chosen", "rejected")), ("sided", ("completion", "label")), ("whole", ("completion", None)):
    for part in "train", "eval":
        with open(f"{part}_{name}.jsonl", "w") as out:
            for i in range(12):
                row = {"prompt": "What is %d + 4?" % i, fields[0]: " it is %d" % i, "kind": "ab"[i % 3 == 0]}
                if fields[1]: row[fields[1]] = " no, never" if fields[1] == "rejected" else i % 2 == 0
                if part == "eval" and i == 11: del row["kind"]
                out.write(json.dumps(row) + "\n")
P
"$temper" init --config model/config.json --tokenizer model --seed 8 --output teacher > /dev/null
by_kind="data.shuffle=false data.balance.mode=report data.balance.field=kind"
grouped() {  # NAME ROWS VERB ...
  local name=$1 rows="data.train=train_$2.jsonl data.eval=eval_$2.jsonl" verb=$3
  shift 3
  "$temper" $verb $run $rows data.shuffle=false output_dir=$name-plain "$@" > log 2>&1 || fail "$name: $(tail -3 log)"
  "$temper" $verb $run $rows $by_kind output_dir=$name-one "$@" > log 2>&1 || fail "$name by group: $(tail -3 log)"
  "$temper" check $verb $run $rows $by_kind output_dir=$name-checked "$@" > log 2>&1
  grep -q '^pass  *data.eval' log || fail "check $name, evaluation rows in no group: $(grep data.eval log)"
  "$temper" $verb --nproc 2 $run $rows $by_kind output_dir=$name-two "$@" > log 2>&1 || fail "$name on two ranks: $(tail -3 log)"
}
grouped sft2 whole sft
grouped dpo pairs dpo
grouped kto sided dpo preference.loss=kto
grouped orpo pairs orpo
grouped reward pairs reward
for strategy in logit attention_transfer attention_projection feature_pooling feature_projection on_policy; do
  grouped $strategy whole distill distill.teacher=teacher distill.strategy=$strategy rollout.max_new_tokens=6 rollout.ignore_eos=true
done
python3 - <<'P' || fail "metrics by group of other verbs"
import json
rows = lambda run: [json.loads(line) for line in open(run + "/metrics.jsonl")]
PAIRS = {"group_loss", "group_accuracy", "group_margin", "group_reward_chosen", "group_reward_rejected"}
DISTILLED = {"group_loss", "group_distill_loss", "group_task_loss"}
expected = {"dpo": PAIRS, "orpo": PAIRS, "reward": PAIRS, "sft2": {"group_loss"},
            "kto": {"group_loss", "group_reward_chosen", "group_reward_rejected"}}
for name in "logit", "attention_transfer", "attention_projection", "feature_pooling", "feature_projection", "on_policy":
    expected[name] = DISTILLED
counts = {1: {"a": 2, "b": 2}, 2: {"a": 3, "b": 1}}  # rows in the file's order, four a step
for name, metrics in expected.items():
    plain, one, two = (rows(f"{name}-{kind}") for kind in ("plain", "one", "two"))
    assert [r.get("loss") for r in plain] == [r.get("loss") for r in one], name
    assert [r.get("eval/loss") for r in plain] == [r.get("eval/loss") for r in one], name
    assert len(one) == 3 and not any("group_" in k for r in plain for k in r), name
    for row, ranks in zip(one, two):
        prefix = "eval/" if "eval/loss" in row else ""
        groups = {k: v for k, v in row.items() if k.startswith(prefix + "group_")}
        named = {f"{prefix}{m}/{g}" for m in metrics for g in "ab"}
        # In kto's second step none of b's completions is a bad one.
        assert set(groups) == named - ({"group_reward_rejected/b"} if name == "kto" and row["step"] == 2 and not prefix else set()), (name, row)
        for key, value in groups.items():
            assert abs(value - ranks[key]) < 1e-5 * max(1, abs(value)), (name, key, value, ranks[key])
        for metric in metrics if not prefix else ():
            a, b = (row.get(f"{metric}/{g}", row[f"{metric}/a"]) for g in "ab")
            whole, n = row[metric.removeprefix("group_")], counts[row["step"]]
            assert min(a, b) - 1e-6 <= whole <= max(a, b) + 1e-6, (name, metric, row)
            assert metrics is not PAIRS or abs(whole - (n["a"] * a + n["b"] * b) / 4) < 1e-6, (name, metric, row)
P
for chart in 'loss by group' 'margin by group' group_accuracy/a; do grep -q "$chart" dpo-one/report.html || fail "the report of dpo has no $chart"; done
grep -q 'distill loss by group' logit-one/report.html || fail "the report of distill has no chart by group"
"$temper" report dpo-one dpo-two --output both.html > /dev/null && grep -q 'group_accuracy/a' both.html || fail "runs are not compared by group"

# rl.difficulty: what is always solved (a) is sampled once, on two ranks and after a resume as well; what is not, again
# and again.
cat > by_kind.py <<'P'
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print(1 if row["kind"] == "a" else 0.5 + 0.001 * (row["completion_tokens"][0] % 7), flush=True)
P
curriculum="$run data.train=prompts.jsonl rl.group_size=2 rl.prompts_per_rollout=3 rollout.max_new_tokens=4 rl.difficulty.mode=skip train.max_steps=6 train.save_every=3"
reward='rewards=[{name: kind, command: [python3, by_kind.py]}]'
"$temper" grpo $curriculum "$reward" output_dir=skip > log 2>&1 || fail "rl.difficulty: $(tail -3 log)"
"$temper" grpo --nproc 2 $curriculum "$reward" output_dir=skip2 > log 2>&1 || fail "rl.difficulty on two ranks: $(tail -3 log)"
cp -r skip again && rm -rf again/final again/checkpoints/step-6 && "$temper" grpo $curriculum "$reward" output_dir=again > log 2>&1 || fail "rl.difficulty, resumed: $(tail -3 log)"
"$temper" grpo $run data.train=prompts.jsonl rl.difficulty.mode=weigh rl.max_staleness=1 "$reward" output_dir=stale > log 2>&1
[ $? = 2 ] && grep -q 'rl.difficulty.mode' log || fail "rl.difficulty with rl.max_staleness: $(cat log)"
python3 - <<'P' || fail "rl.difficulty: $(cut -c1-120 skip/rollouts/*.jsonl)"
import json
def sampled(run, step): return [json.loads(line) for line in open(f"{run}/rollouts/step-{step}.jsonl")]
rows = [json.loads(line) for line in open("skip/metrics.jsonl")]
solved = [sum(e["reward"] == 1 for e in sampled("skip", step)) for step in range(1, 7)]
assert sum(solved) == 6 and sum(solved[2:]) == 0, solved  # three prompts of kind a, two completions each, in the first pass
assert rows[0]["prompts_passed_over"] == 0 and sum(r["prompts_passed_over"] for r in rows[2:]) > 0, rows
for other in ("skip2", "again"):
    for step in range(1, 7):
        assert [e["completion_tokens"] for e in sampled("skip", step)] == [e["completion_tokens"] for e in sampled(other, step)], (other, step)
    assert [r["prompts_passed_over"] for r in rows] == [json.loads(l)["prompts_passed_over"] for l in open(other + "/metrics.jsonl")], other
P
exit $bad
