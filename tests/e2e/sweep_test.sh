#!/usr/bin/env bash
# temper sweep: a run for each combination, as it is alone; and temper report of a run and its fork. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
cat > run.yaml <<'Y'
model: {path: model}
data: {train: rows.jsonl, eval: rows.jsonl}
adapter: {method: lora, rank: 4}
train: {batch_size: 4, max_steps: 6, eval_every: 3}
metrics: {sinks: [jsonl]}
Y
numbers_of() { sed -E 's/"(step_seconds|tokens_per_second|peak_memory_bytes)": [^,}]*,? ?//g' "$1/metrics.jsonl"; }
same_run() {
  cmp <(numbers_of "$1") <(numbers_of "$2") || fail "$1: other metrics than $2"
  cmp "$1/final/adapter_model.safetensors" "$2/final/adapter_model.safetensors" || fail "$1: another final/ than $2"
  cmp "$1/manifest.jsonl" "$2/manifest.jsonl" || fail "$1: another manifest than $2"
}
"$temper" sweep sft run.yaml output_dir=s --over optimizer.learning_rate=1e-3,1e-2 --over adapter.rank=2,4 --seeds 0,1 > log 2>&1 || fail "sweep: $(cat log)"
[ "$(ls -d s/*/ | wc -l)" = 8 ] || fail "runs: $(ls s)"
grep -q 'learning_rate=1e-3,rank=2,seed=1' s/report.html || fail "no run in the report"
"$temper" sft run.yaml output_dir=alone optimizer.learning_rate=1e-2 adapter.rank=2 seed=1 > /dev/null || fail "alone: $?"
same_run s/learning_rate=1e-2,rank=2,seed=1 alone
grep -q 'learning_rate: 0.01 ' s/learning_rate=1e-2,rank=2,seed=1/config.yaml || fail "its settings are not in its config"

# The same command resumes: complete runs stay, one that was killed goes on.
rm -r s/learning_rate=1e-2,rank=2,seed=1/final s/learning_rate=1e-2,rank=2,seed=1/checkpoints
"$temper" sweep sft run.yaml output_dir=s --over optimizer.learning_rate=1e-3,1e-2 --over adapter.rank=2,4 --seeds 0,1 > log 2>&1 || fail "again: $(cat log)"
[ "$(grep -c 'this run is complete' log)" = 7 ] || fail "again: $(cat log)"
same_run s/learning_rate=1e-2,rank=2,seed=1 alone

# LoRA runs of one base share passes, whatever else differs, and leave what they leave alone.
# as_alone VERB KEY=A,B KEY=A,B [KEY=VALUE]...: a sweep of four runs.
as_alone() {
  local verb=$1 first=$2 second=$3 a b
  shift 3
  "$temper" sweep "$verb" run.yaml output_dir="t-$verb" "$@" --over "$first" --over "$second" > log 2>&1 || fail "$verb: $(cat log)"
  grep -q '^sweep: 4 runs share a base, planned memory ' log || fail "$verb: no base is shared: $(cat log)"
  for a in $(tr , ' ' <<< "${first#*=}"); do
    for b in $(tr , ' ' <<< "${second#*=}"); do
      "$temper" "$verb" run.yaml output_dir="o-$verb" "$@" "${first%%=*}=$a" "${second%%=*}=$b" > /dev/null || fail "$verb alone: $?"
      same_run "t-$verb/$(sed 's/.*\.//' <<< "${first%%=*}")=$a,$(sed 's/.*\.//' <<< "${second%%=*}")=$b" "o-$verb"
      rm -r "o-$verb"
    done
  done
}
for i in $(seq 30); do echo "{\"prompt_ids\": [$((3 + i)), 5], \"chosen_ids\": [$((7 + i)), 9, $i], \"rejected_ids\": [$i, 8]}"; done > pairs.jsonl
pairs=(data.train=pairs.jsonl data.eval=pairs.jsonl)
as_alone sft train.batch_size=3,5 adapter.use_dora=false,true train.micro_batch_tokens=10
as_alone dpo optimizer.learning_rate=1e-3,1e-2 adapter.rank=2,3 "${pairs[@]}"
as_alone orpo adapter.dropout=0,0.1 seed=1,2 "${pairs[@]}"
as_alone reward seed=1,2 adapter.alpha=4,8 "${pairs[@]}"
"$temper" sweep sft run.yaml output_dir=apart --over adapter.method=none,lora > log 2>&1 || fail "apart: $(cat log)"
! grep -q 'share a base' log || fail "all weights train, and share a base: $(cat log)"
# Killed in the middle, wherever each run is then, it goes on.
middle=(sweep sft run.yaml output_dir=k train.max_steps=200 train.save_every=5 --over optimizer.learning_rate=1e-3,1e-2 --over train.batch_size=2,4)
"$temper" "${middle[@]}" > log 2>&1 & victim=$!
until_rows k/learning_rate=1e-3,batch_size=2 20 $victim
kill -KILL $victim; wait $victim
ls k/*/final > /dev/null 2>&1 && fail "it was killed too late"
"$temper" "${middle[@]}" > log 2>&1 || fail "after a kill: $(cat log)"
grep -q 'resuming from' log || fail "it begins again: $(cat log)"
for rate in 1e-3 1e-2; do
  "$temper" sft run.yaml output_dir=whole train.max_steps=200 train.save_every=5 optimizer.learning_rate=$rate train.batch_size=4 > /dev/null
  same_run k/learning_rate=$rate,batch_size=4 whole
  rm -r whole
done
"$temper" top k --once > log || fail "top: $?"
[ "$(grep -c '^learning_rate=1e-[23],batch_size=[24]: not running; step 200 of 200 ' log)" = 4 ] || fail "top: $(cat log)"

# A wrong combination ends it before any run; its rows are its own.
head -3 rows.jsonl > short.jsonl && echo '{"input_ids": "x"}' >> short.jsonl
for wrong in '--over optimizer.learning_rate=1e-3,x' '--over adapter.rank=4,-1' '--over model.path=model,nothing' '--over adapter.rank' '--over optimizer.learning_rates=1' \
  '--over output_dir=a,b' '--over data.train=rows.jsonl,short.jsonl' '--over seed=1,1' '--stop-worst 0.5'; do
  "$temper" sweep sft run.yaml output_dir=wrong $wrong > log 2>&1
  [ $? = 2 ] && [ ! -e wrong ] || fail "$wrong: $(cat log)"
done
"$temper" sweep generate run.yaml > log 2>&1
[ $? = 2 ] || fail "sweep generate: $(cat log)"

# Equal values, however they are written, and a value that would be ignored.
refused() {
  local said=$1
  shift
  "$temper" sweep sft run.yaml output_dir=wrong "$@" > log 2>&1
  [ $? = 2 ] && [ ! -e wrong ] && [ "$(wc -l < log)" = 1 ] && grep -qF -- "$said" log || fail "$*: expected $said: $(cat log)"
}
refused 'sweep: learning_rate=0.0001: the same run as learning_rate=1e-4; leave one of them out; no run was started' --over optimizer.learning_rate=1e-4,1e-3,0.0001
refused 'sweep: train=rows.jsonl: the same run as train=._rows.jsonl' --over data.train=rows.jsonl,./rows.jsonl
refused 'the same run as' --over "data.train=[rows.jsonl],[$PWD/rows.jsonl]"
refused 'found optimizer.learning_rate=1, and values of optimizer.learning_rate (--over optimizer.learning_rate=1e-4,1e-3)' optimizer.learning_rate=1 --over optimizer.learning_rate=1e-4,1e-3
refused 'found optimizer={learning_rate: 1}, and values of' 'optimizer={learning_rate: 1}' --over optimizer.learning_rate=1e-4,1e-3
refused 'found seed=3, and values of seed (--seeds or' seed=3 --seeds 0,1

# Rows that change between two calls are noticed, as in a run alone.
cp rows.jsonl changing.jsonl
for steps in 2 4; do
  for run in 'sweep sft run.yaml --over adapter.rank=2,4 output_dir=c' 'sft run.yaml adapter.rank=2 output_dir=c-alone'; do
    "$temper" $run data.train=changing.jsonl data.eval=[] train.eval_every=0 train.max_steps=$steps train.save_every=2 > "log-${run%% *}" 2>&1 || fail "$run: $(cat "log-${run%% *}")"
  done
  sed -i '1s/5/6/' changing.jsonl
done
noticed='warning: the run continues with files that have changed since c[^:]*/checkpoints/step-2: data.train\[0\].path (changing.jsonl)'
[ "$(grep -c "$noticed" log-sweep)" = 2 ] && [ "$(grep -c "$noticed" log-sft)" = 1 ] || fail "changed rows: $(cat log-sweep log-sft)"

# The worst end after a step, whole: by the loss of the evaluation there.
worst() { "$temper" sweep sft run.yaml output_dir=w --over optimizer.learning_rate=1e-2,1e-9,3e-2,1e-8 --stop-worst 0.5 --by eval/loss --after 3 > log 2>&1 || fail "worst: $(cat log)"; }
for time in first second; do
  worst
  for rate in 1e-9 1e-8; do
    grep -q "learning_rate=$rate ends after step 3: eval/loss" log || fail "$time: $rate is not named: $(cat log)"
    [ "$(tail -1 w/learning_rate=$rate/manifest.jsonl | grep -c '"step": 3,.*"final"')" = 1 ] && [ -e w/learning_rate=$rate/final/adapter_model.safetensors ] \
      || fail "$time: $rate is not whole"
  done
done
"$temper" verify w/learning_rate=1e-9 > log 2>&1 || fail "verify of a run that was ended: $(cat log)"
sed 's/"ended_early": true/"ended_early": false/' w/learning_rate=1e-9/manifest.jsonl > other.jsonl
cmp -s other.jsonl w/learning_rate=1e-9/manifest.jsonl && fail "the manifest does not say that the run was ended"
"$temper" sft run.yaml output_dir=best optimizer.learning_rate=3e-2 > /dev/null
cmp <(numbers_of best) <(numbers_of w/learning_rate=3e-2) || fail "a run that goes on has other metrics than alone"
cmp best/final/adapter_model.safetensors w/learning_rate=3e-2/final/adapter_model.safetensors || fail "a run that goes on ends otherwise than alone"

# A run and its fork, paired by step: the page and the table have the mean difference and its interval.
"$temper" sft run.yaml output_dir=run train.max_steps=8 train.save_every=4 > /dev/null
"$temper" fork run@4 --output fork optimizer.learning_rate=1e-2 > /dev/null || fail "fork: $?"
"$temper" report run fork --output both.html > log || fail "report: $(cat log)"
grep -q 'fork less run, paired by step, after step 4' both.html || fail "no differences in the page"
python3 - <<'P' || fail "differences: $(cat log)"
import json, math, re
losses = lambda run: {r["step"]: r["loss"] for r in map(json.loads, open(run + "/metrics.jsonl")) if "loss" in r and r["step"] > 4}
a, b = losses("run"), losses("fork")
d = [b[s] - a[s] for s in a]
assert len(d) == 4 and list(a) == list(b)
mean = sum(d) / 4
half = 3.182446305284263 * (sum((x - mean) ** 2 for x in d) / 3 / 4) ** 0.5  # Student's t, 3 degrees of freedom
# Of autocorrelated steps: of 4 one term of the cosine transform, and Student's t with 1 degree of freedom.
term = sum((x - mean) * math.cos(math.pi * (t + 0.5) / 4) for t, x in enumerate(d))
series = 12.706204736432095 * abs(term) * (2 / 4 / 4) ** 0.5
row = re.search("<tr><td>loss</td><td>4</td>(.*?)</tr>", open("both.html").read())[1]
numbers = [float(x) for x in re.findall(r"-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?", row)]
assert abs(numbers[2] - mean) < 1e-12 and abs(numbers[3] - (mean - half)) < 1e-9 and abs(numbers[4] - (mean + half)) < 1e-9, numbers
assert abs(numbers[7] - (mean - series)) < 1e-9 and abs(numbers[8] - (mean + series)) < 1e-9, numbers
# The console has fewer digits, and no metric that is constant.
lines = open("log").read().splitlines()
words = next(line for line in lines if line.split()[0] == "loss").split()
assert all(len(word) < 12 and abs(float(word) - number) <= 0.01 * abs(mean) for word, number in zip(words[2:6], numbers)), words
assert not any(line.split()[0] == "tokens" for line in lines), lines
assert any(re.match("  left out: [0-9]+ metrics with equal values", line) for line in lines), lines
P
# A fork of a fork is paired with both, wherever the run between them is; where nobody knows, that is said.
"$temper" fork fork@8 --output longer train.max_steps=12 > /dev/null || fail "a fork of a fork: $?"
"$temper" sft run.yaml output_dir=run train.max_steps=12 train.save_every=4 > /dev/null 2>&1 || fail "a longer run: $?"
"$temper" report run longer --output chain.html > log 2>&1 && grep -q '^longer less run, paired by step, after step 8$' log || fail "a fork of a fork: $(cat log)"
mv fork moved
"$temper" report run longer --output chain.html > log 2>&1 && grep -q "^warning: longer goes on from $PWD/fork, which is no longer there: whether longer goes back to run is not known" log \
  || fail "a lost fork: $(cat log)"
"$temper" report run moved longer --output chain.html > log 2>&1
[ "$(grep -c 'less .*, paired by step, after step' log)" = 3 ] && ! grep -q warning log || fail "a moved fork: $(cat log)"
mv moved fork
! grep -q 'paired by prompt' log || fail "runs without rollouts are paired by prompt"
# Of reinforcement learning, also by prompt: those of steps that both runs have, of which one is lost here.
even_reward
for i in $(seq 5); do echo "{\"prompt_ids\": [$((3 + i)), $((7 + i)), 5]}"; done > prompts.jsonl
"$temper" grpo model.path=model data.train=prompts.jsonl rl.prompts_per_rollout=3 rl.group_size=3 rollout.max_new_tokens=8 'rewards=[{name: even, command: [sh, even.sh]}]' \
  optimizer.learning_rate=1e-2 metrics.sinks=jsonl train.save_every=4 train.max_steps=9 output_dir=rl > log 2>&1 || fail "grpo: $(cat log)"
fork=(fork rl@4 rl.group_size=4 optimizer.learning_rate=5e-2 --output)
"$temper" "${fork[@]}" rl-fork rl.compress_rollouts=true > log 2>&1 || fail "fork: $(cat log)"
"$temper" "${fork[@]}" plain > log 2>&1 || fail "fork: $(cat log)"
rm rl-fork/rollouts/step-8.jsonl.zst
"$temper" report rl rl-fork --output both.html > log || fail "report: $(cat log)"
grep -q 'rl-fork less rl, paired by prompt, after step 4' both.html && grep -q 'prompts whose reward changed most' both.html || fail "no prompts in the page"
python3 - <<'P' || fail "prompts: $(cat log)"
import collections, html, json, re
def groups(run, step):
    found = collections.defaultdict(list)
    for row in map(json.loads, open(f"{run}/rollouts/step-{step}.jsonl")):
        found[row["group"], tuple(row["prompt_tokens"])].append((row["reward"], len(row["completion_tokens"])))
    return {key: [sum(x) / len(rows) for x in zip(*rows)] for key, rows in found.items()}
seen = collections.defaultdict(list)
for step in (5, 6, 7, 9):
    a, b = groups("rl", step), groups("plain", step)
    assert a.keys() == b.keys() and len(a) == 3
    for key in a: seen[key[1]].append((*a[key], *b[key]))
means = [[sum(x) / len(rows) for x in zip(*rows)] for rows in seen.values()]
page = open("both.html").read()
table = lambda title: [[html.unescape(re.sub("<.*?>", " ", cell)) for cell in row.split("</td>")[:-1]] for row in re.search(title + ".*?</table>", page, re.S)[0].split("<tr>")[2:]]
lines = open("log").read().splitlines()
after = lambda words, more: lines[[words in line for line in lines].index(True) + more:]
for name, place in (("reward", 0), ("completion length (tokens)", 1)):
    d = [m[place + 2] - m[place] for m in means]
    mean = sum(d) / 5
    half = 2.7764451051977987 * (sum((x - mean) ** 2 for x in d) / 4 / 5) ** 0.5  # Student's t, 4 degrees of freedom
    words = " ".join(next(row[1:] for row in table("paired by prompt") if row[0].strip() == name)).split()
    same = lambda word, value: abs(float(word) - value) < 1e-9
    assert words[0] == "5" and same(words[1], sum(m[place] for m in means) / 5) and same(words[3], mean), words
    assert same(words[4], mean - half) and same(words[6], mean + half), words
assert "left out: steps with rollouts in one run only 1 0".split() in [line.split() for line in after("paired by prompt", 2)]
changed = after("changed most", 2)
sums = {key: sum(r[2] - r[0] for r in rows) for key, rows in seen.items()}
first = max(sums, key=lambda key: abs(sums[key]))
assert same(table("changed most")[0][3], sums[first]), table("changed most")
assert len(changed) == 5 and changed[0].endswith("token ids " + " ".join(map(str, first))), changed[0]
P
sed -i '3s/"reward"/"rewart"/' rl/rollouts/step-6.jsonl
"$temper" report rl rl-fork --output both.html > log 2>&1 || fail "a broken line: $(cat log)"
grep -q '^warning: rl/rollouts/step-6.jsonl:3: no `reward`.*; the line is left out$' log && grep -q '^  left out: lines that are no rollouts  *1  *0' log \
  && grep -q 'left out: lines that are no rollouts' both.html || fail "a broken line: $(cat log)"
# A run is given once, however it is written.
for other in rl rl/ ./rl "$PWD/rl-fork/../rl"; do
  "$temper" report rl "$other" --output none.html > log 2>&1
  [ $? = 2 ] && [ ! -e none.html ] && grep -q "^temper: $other: \(given twice\|the same run as rl\); give each run once" log || fail "report rl $other: $(cat log)"
done
"$temper" report run best --output other.html > log && ! grep -q 'paired by step' log || fail "two runs that are no fork of each other"

# Rows of combinations that differ in the optimizer alone are measured once: what such a sweep reads is less than what one
# reads whose rows may differ, by the file.
if [ -r /proc/self/io ]; then
  python3 -c '
import json
for i in range(1000): print(json.dumps({"input_ids": [3 + i * k % 50 for k in range(6)], "more": "x" * 900}))' > many.jsonl
  python3 - "$temper" <<'P' || fail "rows that were measured are measured again"
import os, subprocess, sys
def read_bytes(setting):
    run = [sys.argv[1], "sweep", "sft", "model.path=model", "data.train=many.jsonl", "output_dir=m-" + setting.split("=")[0],
           "train.max_steps=1", "metrics.sinks=[jsonl]", "--over", setting]
    io = lambda: int(next(line.split()[1] for line in open("/proc/self/io") if line.startswith("rchar")))  # ended children, too
    before = io()
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    return io() - before
saved = read_bytes("train.batch_size=3,4") - read_bytes("optimizer.learning_rate=1e-3,2e-3")
size = os.path.getsize("many.jsonl")
assert abs(saved - size) < size / 4, (saved, size)
P
else
  echo "skipped: this system does not count what a process reads"
fi
exit $bad
