#!/usr/bin/env bash
# Episodes with environments and tools from the command line: programs that speak the protocol, tools that are started
# for each call, the environments that Temper brings, runs that are killed, ranks, and environments that misbehave. $1:
# the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
examples=$TEMPER_SOURCE_DIR/examples

python3 "$examples/grid_world_model.py" grid_world || fail "the model of the example"
"$temper" init --config grid_world/config.json --tokenizer grid_world --output grid_world/model > /dev/null || fail "init"
small="model.path=grid_world/model data.train=grid_world/rows.jsonl train.max_steps=4 train.save_every=1 rl.group_size=4 rl.prompts_per_rollout=4
  rl.beta=0 rollout.max_new_tokens=64 train.micro_batch_tokens=512 metrics.sinks=[jsonl]"

# The walk in the grid as a program: the protocol's every word is kept in a file.
cat > walk.py <<'P'
import json, os, sys
log = open("log-%d" % os.getpid(), "a")
state = {}
for line in sys.stdin:
    request = json.loads(line)
    episode, kind = request["episode"], request["type"]
    log.write(kind + " %d\n" % episode); log.flush()
    if kind == "reset":
        state[episode] = [request["row"]["seed"] % 3 + 1, 0]
        print(json.dumps({"episode": episode, "messages": []}), flush=True)
    elif kind == "step":
        s = state[episode]; s[1] += 1
        print(json.dumps({"messages": [{"role": "user", "content": "it lies north"}], "reward": 0.5 * ("north" in request["completion"]), "done": s[1] >= s[0]}), flush=True)
    else:
        del state[episode]
P
walk='environment={command: [python3, walk.py], max_turns: 3, workers: 2}'
"$temper" grpo $small "$walk" output_dir=whole || fail "a run with a program: $?"
zero_diffs whole/metrics.jsonl
python3 - <<'P' || fail "rollouts or protocol"
import glob, json
logs = [l.split() for f in glob.glob("log-*") for l in open(f)]
count = lambda kind: len([l for l in logs if l[0] == kind])
turns = 0
for path in glob.glob("whole/rollouts/*.jsonl"):
    for row in map(json.loads, open(path)):
        n, mask = len(row["completion_tokens"]), row["completion_mask"]
        assert len(mask) == n <= 64 and len(row["logprobs"]) == n
        assert all((p == 0) == (m == 0) for p, m in zip(row["logprobs"], mask))
        assert row["turns"] == sum(m and (i == 0 or not mask[i - 1]) for i, m in enumerate(mask))
        assert row["rewards"]["environment"] == row["reward"]
        turns += row["turns"]
assert len(glob.glob("log-*")) == 2
assert count("reset") == count("close") == 64, (count("reset"), count("close"))
assert count("step") == turns
assert len({l[1] for l in logs if l[0] == "reset"}) == 64
P
rm -f log-*
for delay in 0.4 0.8; do
  rm -rf killed
  killed_after $delay "$temper" grpo $small "$walk" output_dir=killed > /dev/null || true
  "$temper" grpo $small "$walk" output_dir=killed > /dev/null || fail "going on after $delay s"
  cmp whole/final/model.safetensors killed/final/model.safetensors || fail "weights of a run killed after $delay s differ"
  cmp <(numbers whole/metrics.jsonl) <(numbers killed/metrics.jsonl) || fail "metrics of a run killed after $delay s differ"
done
"$temper" grpo --nproc 2 $small "$walk" output_dir=two train.max_steps=1 > /dev/null || fail "two ranks"
cmp whole/rollouts/step-1.jsonl two/rollouts/step-1.jsonl || fail "two ranks sample other episodes"
OMP_NUM_THREADS=1 "$temper" grpo $small "$walk" environment.workers=5 output_dir=other > /dev/null || fail "other workers"
cmp whole/final/model.safetensors other/final/model.safetensors || fail "threads and workers change the weights"
cat whole/rollouts/step-{1,2,3,4}.jsonl > all.jsonl
"$temper" grpo $small data.train=[] rl.replay=all.jsonl output_dir=replay > /dev/null || fail "replay"
cmp whole/final/model.safetensors replay/final/model.safetensors || fail "training on the file is not the run"
"$temper" ppo ${small/rl.group_size=4/rl.group_size=1} "$walk" output_dir=ppo > /dev/null || fail "ppo"
zero_diffs ppo/metrics.jsonl

# Environments that Temper brings, and the configs of the example.
"$temper" list environments | grep '^grid_world' > /dev/null || fail "list environments"
"$temper" grpo "$TEMPER_SOURCE_DIR/configs/grid_world.yaml" train.max_steps=2 train.eval_every=1 > grid.log 2>&1 || fail "grid_world.yaml: $(tail -1 grid.log)"
# Grids of text, after a warm start whose walks are in the same game; rows with one prompt and different seeds are
# different episodes.
cat > same_game.py <<'P'
import json, sys
sys.path.insert(0, sys.argv[2])
import grid_games_model as model
words = {i: word for word, i in json.load(open(sys.argv[1] + "/tokenizer.json"))["model"]["vocab"].items()}
def where(kinds, text): return {(int(w[1]), int(w[2])) for w in text.partition("assistant")[0].split() if w[0] in kinds}
moves = 0
for row in map(json.loads, open(f"runs/{sys.argv[1]}/rollouts/step-1.jsonl")):
    text = " ".join(words[t] for t in row["prompt_tokens"] + row["completion_tokens"])
    turns = text.replace("<|im_start|>", "").replace("<|im_end|>", "").split("user")[2:]
    for turn, following in zip(turns, turns[1:]):
        cells, _, said = turn.partition("assistant")
        move = said.strip()
        if move not in model.MOVES or not where("PS", following): continue
        if sys.argv[1] == "frozen_lake":
            game = model.Lake()
            game.goal, game.holes = [*where("G", cells)][0], where("O", cells)
            state = lambda text: [*where("P", text)][0]
        else:
            game = model.Room()
            game.floor, game.target = where("PSXO_√", cells), [*where("SO√", cells)][0]
            state = lambda text: ([*where("PS", text)][0], [*where("X√", text)][0])
        assert game.after(state(cells), move) == state(following), (turn, following)
        moves += 1
assert moves > 50, moves
P
for game in frozen_lake sokoban; do
  python3 "$examples/grid_games_model.py" $game && "$temper" init --config $game/config.json --tokenizer $game --output $game/model > /dev/null || fail "$game: the model"
  "$temper" sft "$TEMPER_SOURCE_DIR/configs/${game}_sft.yaml" train.max_steps=16 > $game.log 2>&1 || fail "${game}_sft.yaml: $(tail -1 $game.log)"
  "$temper" check grpo "$TEMPER_SOURCE_DIR/configs/$game.yaml" > $game.log 2>&1 || fail "check $game: $(grep '^fail' $game.log)"
  "$temper" grpo "$TEMPER_SOURCE_DIR/configs/$game.yaml" train.max_steps=1 train.eval_at_start=false rl.prompts_per_rollout=8 > $game.run 2>&1 || fail "$game.yaml: $(tail -1 $game.run)"
  python3 same_game.py $game "$examples" || fail "the walks of $game are in another game"
  grep -q '^pass *data.duplicates' $game.log && grep -q '^pass *data.overlap' $game.log || fail "rows of $game: $(grep '^warn' $game.log)"
done
cat frozen_lake/rows.jsonl <(head -1 frozen_lake/rows.jsonl) > twice.jsonl
"$temper" check grpo "$TEMPER_SOURCE_DIR/configs/frozen_lake.yaml" data.train=twice.jsonl > twice.log 2>&1
grep -q '^warn *data.duplicates *1 row repeats' twice.log || fail "a repeated row is not named: $(cat twice.log)"
grep -q '"eval/reward_mean"' runs/grid_world/metrics.jsonl && grep -q '"turns_mean"' runs/grid_world/metrics.jsonl || fail "grid_world.yaml: no metrics"

# A tool: the words that this model has are few, so any turn is taken for a call of it by the template's notation.
"$temper" grpo $small output_dir=tools train.max_steps=1 'rewards=[{name: length}]' \
  "environment={tools: [{name: count_words, command: [python3, $examples/tool.py], parameters: {type: object}}]}" > /dev/null || fail "tools"
[ "$(value tools/metrics.jsonl turns_mean)" = 1 ] || fail "a turn without a call does not end the episode"
printf '{"text": "two words"}\n' | python3 "$examples/tool.py" | grep -qx 2 || fail "tool.py"
printf '{"episode": 1, "type": "reset", "row": {"secret": 7}}\n{"episode": 1, "type": "step", "completion": "9", "tool_calls": []}\n{"episode": 1, "type": "close"}\n' |
  python3 "$examples/environment.py" | tail -1 | grep -q Lower || fail "environment.py"

# Misbehaving ones cost their episodes alone, and nothing of them is left.
cat > wild-$$.py <<P
import json, os, sys, time, zlib
for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close": continue
    dice = zlib.crc32(line.encode()) % 12
    if request["type"] == "step":
        if dice == 0: os.system("sleep 77.$$ &"); time.sleep(77)
        if dice == 1: os._exit(3)
        if dice == 2: print("garbage", flush=True); continue
        if dice == 3: print("noise"); print('{"messages": [], "done": "yes"}', flush=True); continue
        if dice == 4: os.kill(os.getpid(), 11)
    print(json.dumps({"messages": [{"role": "user", "content": "east"}], "done": False}), flush=True)
P
"$temper" grpo $small output_dir=wild "environment={command: [python3, wild-$$.py], timeout_seconds: 1, start_timeout_seconds: 20}" > /dev/null || fail "wild: $?"
for what in timeouts crashes malformed; do [ "$(value wild/metrics.jsonl environment_$what | tail -1)" -gt 0 ] || fail "environment_$what were not counted"; done
[ "$(cat wild/rollouts/*.jsonl | wc -l)" = 64 ] || fail "wild: an episode is missing"
pgrep -f "sleep 77.$$|wild-$$.py" > /dev/null && fail "a process is left: $(pgrep -af "sleep 77.$$|wild-$$.py")"
ls -d "${TMPDIR:-/tmp}"/temper-worker-*-* 2> /dev/null | grep -q "temper-worker-$$-" && fail "a directory is left"
status=0; "$temper" grpo $small output_dir=stop 'environment={command: [sh, -c, "echo why >&2; exit 7"], on_failure: stop}' 2> err || status=$?
[ $status = 1 ] && grep -q "status 7: why (its on_failure is stop)" err || fail "on_failure: stop: $status $(cat err)"
"$temper" grpo $small output_dir=zero train.max_steps=1 'environment={command: [sh, -c, "exit 7"]}' > /dev/null || fail "on_failure: zero, at the reset"
[ "$(grep -c '"reward": *0' zero/rollouts/step-1.jsonl)" = 16 ] || fail "zero: not 16 episodes"
for ranks in 1 2; do
  status=0; "$temper" grpo --nproc $ranks $small output_dir=failing-$ranks 'environment={command: [sh, -c, "exit 7"]}' 2> err || status=$?
  [ $status = 1 ] && grep -q "the environment failed in all episodes of 3 rollouts in a row (the first failure: .*status 7" err || fail "an environment that always fails: $status $(cat err)"
  [ "$(wc -l < failing-$ranks/metrics.jsonl)" = 2 ] || fail "not two steps without an environment"
done
# What is told is what failed, and not what was passed over before it.
"$temper" grpo $small output_dir=noisy train.max_steps=1 'environment={command: [sh, -c, "echo hello; while read -r line; do echo garbage; done"]}' > err 2>&1 || fail "noisy: $?"
grep "the environment failed" err | grep -q garbage || fail "the first cause: $(cat err)"

refused() { local hint=$1 status=0; shift; "$temper" grpo $small output_dir=refused "$@" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$hint" err || fail "expected $hint, got $status: $(cat err)"; }
refused "grid_world" 'environment={name: grid_wrold}'
refused "not found in PATH" 'environment={command: [no-such-program]}'
refused "tools\[0\].command" 'environment={tools: [{name: f}]}'
refused "tools\[0\].name" 'environment={tools: [{command: [sh]}]}'
refused "rewards is required: tools give no rewards" 'environment={tools: [{name: f, command: [sh]}]}'
refused "max_turns" 'environment={name: grid_world, max_turns: 0}'
refused "environment.comand" 'environment={comand: [sh]}'
refused "answer" 'environment={name: calculator}'
refused "called .environment" 'environment={name: grid_world}' 'rewards=[{name: environment, reward: length}]'
# `eval` judges the episodes that `generate` samples: by the environment's reward, by another, by their sum.
echo 'environment: {name: grid_world, max_turns: 4}' > grid.yaml
head -6 grid_world/rows.jsonl > few.jsonl
judge() { "$temper" eval --model grid_world/model --input few.jsonl --num-samples 3 --max-new-tokens 64 --seed 5 --show 0 "$@"; }
"$temper" generate --model grid_world/model --input few.jsonl --num-samples 3 --max-new-tokens 64 --seed 5 --environment grid.yaml --output episodes.jsonl || fail "generate --environment: $?"
judge --environment grid.yaml --json > environment.json && judge --environment grid.yaml --reward length --json > both.json || fail "eval --environment: $?"
python3 - <<'P' || fail "eval --environment: $(cat environment.json both.json)"
import json
rows = [json.loads(line) for line in open("episodes.jsonl")]
mean = lambda values: sum(values) / len(rows)
alone, both = json.load(open("environment.json")), json.load(open("both.json"))
assert len(rows) == 18 and alone["prompts"] == 6 and alone["samples"] == 3
assert abs(alone["reward"]["mean"] - mean([r["reward"] for r in rows])) < 1e-6
assert abs(alone["turns_mean"] - mean([r["turns"] for r in rows])) < 1e-6 and alone["turns_mean"] > 1 and alone["environment_failures"] == 0
assert abs(alone["completion_length_mean"] - mean([sum(r["completion_mask"]) for r in rows])) < 1e-6
assert abs(both["reward"]["mean"] - alone["reward"]["mean"] + mean([len(r["completion_tokens"]) / 64 for r in rows])) < 1e-6
P
judge --environment grid.yaml | grep -q '^turns  *[0-9.]* per episode, 0 environment failures, 0 episodes dropped' || fail "eval --environment does not say turns"
echo '{command: [python3, silent.py]}' > silent.yaml
cat > silent.py <<'P'
import json, sys
for line in sys.stdin: print(json.dumps({"messages": [], "done": json.loads(line)["type"] == "step"}), flush=True)
P
not_judged() { local hint=$1 status=0; shift; judge "$@" > out 2> err || status=$?; [ $status = 2 ] && grep -q -- "$hint" err || fail "expected $hint, got $status: $(cat err)"; }
echo '[{name: f, command: [sh]}]' > one.json
not_judged "silent.yaml: no answer of the environment had a reward" --environment silent.yaml
not_judged "tools alone give no reward" --tools one.json
not_judged "cannot be combined" --environment grid.yaml --beams 2

not_judged "rows that are sampled" --environment grid.yaml --perplexity

status=0; judge --environment <(echo 'environment: {command: [sh, -c, "exit 7"]}') --reward length > out 2> err || status=$?
[ $status = 1 ] && grep -q "failed in all episodes (the first failure: .*status 7" err || fail "eval with an environment that always fails: $status $(cat err)"
# An episode that is dropped is left out.
cat > drops.py <<'P'
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close": continue
    odd = request.get("row", {}).get("seed", 0) % 2
    answer = {"messages": []} if request["type"] == "reset" else {"messages": [], "done": True, "reward": 0}
    print("garbage" if odd else json.dumps(answer), flush=True)
P
echo 'for line in open(0): print(1, flush=True)' > ones.py
python3 -c 'import json
for seed in (0, 1, 2): print(json.dumps({"prompt": [{"role": "user", "content": "it lies "}], "seed": seed}))' > few.jsonl
judge --environment <(echo 'environment: {command: [python3, drops.py], on_failure: drop, workers: 1}') --reward-command 'python3 ones.py' --json > dropped.json 2> err || fail "eval with dropped episodes: $(cat err)"
python3 -c 'import json; d = json.load(open("dropped.json")); assert d["reward"]["mean"] == 1 and d["reward"]["low"] < 0.5 and d["environment_failures"] == d["episodes_dropped"] == 3 and d["prompts"] == 2 and d["turns_mean"] == 1, d' || fail "dropped episodes"

# Tools and an environment from files: what is wrong names the file.
echo '{tools: [{name: f, command: [sh]}]}' > agent.yaml; echo '[]' > none.json
echo '[{name: f, command: [sh]}, {name: f, command: [sh]}]' > twice.json; echo '[{name: f, command: cat -n}]' > text.json
inspected() { local hint=$1 status=0; shift; "$temper" generate --model grid_world/model --input grid_world/rows.jsonl --output x "$@" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$hint" err || fail "expected $hint, got $status: $(cat err)"; }
inspected "--tools twice.json: agent.yaml has tools of its own" --environment agent.yaml --tools twice.json
tool() { echo "[{type: ${2:-function}, function: {name: f, strict: true${3:-}}$1}]" > wrapped.json; } # COMMAND-OR-NOTHING [TYPE] [MORE]
tool ""; inspected "wrapped.json: environment.tools\[0\].command" --tools wrapped.json
echo '[{type: function, name: f, strict: true}]' > wrapped.json; inspected "wrapped.json: environment.tools\[0\].command" --tools wrapped.json
echo '[{type: function, function: f}]' > wrapped.json; inspected "wrapped.json: .function. is .*f.*, expected a map" --tools wrapped.json
tool "" retrieval; inspected "wrapped.json: a tool of a type that is not supported" --tools wrapped.json
tool ", command: [sh]" function ", command: [sh]"; inspected "wrapped.json: a tool has .command. in .function. and beside it" --tools wrapped.json
head -1 grid_world/rows.jsonl > first.jsonl
for place in "tool ', command: [sh]'" "tool '' function ', command: [sh]'"; do
  eval "$place"
  "$temper" generate --model grid_world/model --input first.jsonl --max-new-tokens 4 --output wrapped.jsonl --tools wrapped.json > /dev/null 2> err || fail "tools in OpenAI's form: $(cat err)"
done
inspected "none.json: found no tool, expected a list" --tools none.json
inspected "twice.json: environment.tools\[1\]: two tools are called" --tools twice.json
inspected "write a program and its arguments as a list: \[cat, ..\]" --tools text.json
odd_model
echo '{"prompt_ids": [3, 4]}' > ids.jsonl
refused "tokenizer" 'environment={name: grid_world}' model.path=model data.train=ids.jsonl
exit $bad
