#!/usr/bin/env bash
# Agents: programs that ask the policy by OpenAI's API. Runs with the example, with one that branches, and with ones
# that fail; sessions of `temper serve`. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
examples=$TEMPER_SOURCE_DIR/examples

python3 "$examples/calculator_model.py" calculator || fail "the model of the example"
"$temper" init --config calculator/config.json --tokenizer calculator --output calculator/model > /dev/null || fail "init"
"$temper" sft model.path=calculator/model data.train=calculator/sft.jsonl output_dir=warm train.max_steps=30 train.batch_size=16 \
  optimizer.learning_rate=3e-3 optimizer.schedule=constant metrics.sinks=[jsonl] > /dev/null || fail "warm-up"
small="model.path=warm/final data.train=calculator/rows.jsonl train.max_steps=3 train.save_every=1 rl.group_size=4 rl.prompts_per_rollout=2
  rl.beta=0 rollout.max_new_tokens=48 train.micro_batch_tokens=512 metrics.sinks=[jsonl]"
agent="environment={openai: {command: [python3, $examples/agent.py]}, max_turns: 3, start_timeout_seconds: 60}"

# The example: two turns, of which the second follows what the first sampled, token by token.
"$temper" grpo $small "$agent" output_dir=whole > whole.log 2>&1 || fail "a run with an agent: $(tail -3 whole.log)"
zero_diffs whole/metrics.jsonl
for what in timeouts crashes malformed; do [ "$(value whole/metrics.jsonl environment_$what | tail -1)" = 0 ] || fail "environment_$what: $(cat whole.log)"; done
python3 - <<'P' || fail "rollouts of the agent"
import glob, json
rows = [json.loads(line) for name in glob.glob("whole/rollouts/*.jsonl") for line in open(name)]
assert len(rows) == 24, len(rows)
two = [r for r in rows if r["turns"] == 2]
assert two, "no episode called the tool"
for r in rows:
    mask, tokens, logprobs = r["completion_mask"], r["completion_tokens"], r["logprobs"]
    assert len(mask) == len(tokens) == len(logprobs) and r["rewards"]["environment"] == r["reward"] in (0, 1)
    assert all((l < 0) == (m == 1) or l == 0 for l, m in zip(logprobs, mask))
    assert (0 in mask) == (r["turns"] == 2), r
P

# Killed, and with other numbers of agents at once: the same bits.
"$temper" grpo $small "$agent" output_dir=killed > /dev/null 2>&1 & run=$!
until_rows killed 1 $run
kill -INT $run; wait $run
"$temper" grpo $small "$agent" output_dir=killed > /dev/null 2>&1 || fail "going on after Ctrl-C"
cmp whole/final/model.safetensors killed/final/model.safetensors || fail "weights of a run after Ctrl-C differ"
cmp <(numbers whole/metrics.jsonl) <(numbers killed/metrics.jsonl) || fail "metrics of a run after Ctrl-C differ"
OMP_NUM_THREADS=1 "$temper" grpo $small "${agent/max_turns/workers: 1, max_turns}" output_dir=one > /dev/null 2>&1 || fail "one worker"
cmp whole/final/model.safetensors one/final/model.safetensors || fail "the number of agents at once changes the weights"

# A small client for the agents below.
cp "$(dirname "$0")/agent_client.py" client.py

# Retries, samples, branches, requests at once and a stream; what a client may not do is refused.
cat > branches.py <<'P'
from client import *
first = row["prompt"]
a, b = said(ask(first))[0], said(ask(first))[0]                      # the same request twice: two turns
one, two = said(ask(first + [a, user("7")], n=2, temperature=0, model="any"))  # two samples; the run's temperature holds
answers = [None, None]
def branch(i, text): answers[i] = said(ask(first + [a, user("7"), one, user(text)]))[0]
threads = [threading.Thread(target=branch, args=(i, text)) for i, text in enumerate(("8", "9"))]
for t in threads: t.start()
for t in threads: t.join()
assert post("/chat/completions", {"messages": first}, "sk-temper-other")["status"] == 401
assert post("/chat/completions", {"messages": first}, "")["status"] == 401
assert post("/completions", {"prompt": "1"})["status"] == 400
assert ask(first, response_format={"type": "json_object"})["status"] == 400
assert ask(first, tools=[])["status"] == 403, "a seventh turn"
assert post("/sessions/%s/reward" % NAME, {"reward": "much"})["status"] == 400
assert post("/sessions/other/reward", {"reward": 1})["status"] == 404
print("noise")
print(json.dumps({"reward": len(a["content"]) - len(b["content"])}))
P
branches="environment={openai: {command: [python3, branches.py]}, max_turns: 6, start_timeout_seconds: 60, on_failure: stop}"
PYTHONPATH=. "$temper" grpo $small "$branches" output_dir=branches > branches.log 2>&1 || fail "an agent that branches: $(tail -3 branches.log)"
zero_diffs branches/metrics.jsonl
PYTHONPATH=. "$temper" grpo $small "$branches" output_dir=again > /dev/null 2>&1 || fail "again"
cmp branches/final/model.safetensors again/final/model.safetensors || fail "requests at once change the weights"
python3 - <<'P' || fail "rollouts of branches"
import glob, json, collections
for name in glob.glob("branches/rollouts/*.jsonl"):
    episodes = collections.defaultdict(list)
    for line in open(name):
        r = json.loads(line); episodes[r["group"], r["sample"]].append(r)
    assert len(episodes) == 8
    for leaves in episodes.values():
        # Leaves: the retry, the other sample, and the two branches after the first one. If two turns say the same, a
        # request continues the first.
        assert len(leaves) == 4, [l["turns"] for l in leaves]
        assert sorted(l["turns"] for l in leaves) == [1, 2, 3, 3], [l["turns"] for l in leaves]
        assert len({l["reward"] for l in leaves}) == 1
        # Each turn trains once: six of them, of at least one token each.
        runs = sum(m == 1 and (i == 0 or l["completion_mask"][i - 1] == 0) for l in leaves for i, m in enumerate(l["completion_mask"]))
        assert runs == 6, runs
P

# The reward: posted, from the last line, or from `rewards` alone.
cat > ends.py <<'P'
from client import *
ask(row["prompt"])
P
PYTHONPATH=. "$temper" grpo $small 'environment={openai: {command: [python3, ends.py]}, start_timeout_seconds: 60}' 'rewards=[{name: length}]' output_dir=ends train.max_steps=1 > /dev/null 2>&1 || fail "rewards of an agent that gives none"
[ "$(grep -c '"length": *0[.,]' ends/rollouts/step-1.jsonl)" -lt 8 ] || fail "rewards judged nothing"
status=0; PYTHONPATH=. "$temper" grpo $small 'environment={openai: {command: [python3, ends.py]}, start_timeout_seconds: 60, on_failure: stop}' output_dir=none > /dev/null 2> err || status=$?
[ $status = 1 ] && grep -q "ended without a reward" err || fail "no reward at all: $status $(cat err)"

# Agents that crash, hang, say nothing or give nonsense cost their episodes alone, and nothing of them is left.
cat > wild-$$.py <<'P'
from client import *
import zlib
dice = zlib.crc32(NAME.encode()) % 6
if dice == 3: sys.exit(3)
ask(row["prompt"])
if dice == 0: os.system("sleep 78.%s &" % os.getppid()); time.sleep(78)
if dice == 1: sys.exit("no more")
if dice == 2: print('{"reward": "high"}'); sys.exit()
if dice == 4: os.kill(os.getpid(), 9)
post("/sessions/%s/reward" % NAME, {"reward": -1})
time.sleep(78)
P
PYTHONPATH=. "$temper" grpo ${small/prompts_per_rollout=2/prompts_per_rollout=6} "environment={openai: {command: [python3, wild-$$.py]}, timeout_seconds: 2, start_timeout_seconds: 60, workers: 8}" output_dir=wild train.max_steps=2 > wild.log 2>&1 || fail "wild: $(tail -3 wild.log)"
zero_diffs wild/metrics.jsonl
for what in timeouts crashes malformed; do [ "$(value wild/metrics.jsonl environment_$what | tail -1)" -gt 0 ] || fail "environment_$what were not counted"; done
grep -q -- '"reward": *-1' wild/rollouts/*.jsonl || fail "a reward that was posted before the agent hangs is lost"
pgrep -f "wild-$$.py|sleep 78\." > /dev/null && fail "a process is left: $(pgrep -af "wild-$$.py|sleep 78\.")"
status=0; "$temper" grpo $small 'environment={openai: {command: [sh, -c, "exit 7"]}}' output_dir=dead > /dev/null 2> err || status=$?
[ $status = 1 ] && grep -q "status 7" err || fail "an agent that always fails: $status $(cat err)"

refused() { local hint=$1 status=0; shift; "$temper" grpo $small output_dir=refused "$@" 2> err > /dev/null || status=$?; [ $status = 2 ] && grep -q -- "$hint" err || fail "expected $hint, got $status: $(cat err)"; }
refused "not found in PATH" 'environment={openai: {command: [no-such-program]}}'
refused "the script .no-agent.py. of the command is not there" 'environment={openai: {command: [python3, no-agent.py]}}'
refused "environment.openai.command: found an empty list" 'environment={openai: {command: []}}' 'rewards=[{name: gsm8k}]'
refused "expected it alone" 'environment={openai: {command: [sh]}, name: calculator}'
refused "rollout.server" "$agent" 'rollout.server.urls=[http://127.0.0.1:1]'
"$temper" check grpo $small "$agent" output_dir=checked > check.log 2>&1
grep -q "an agent, whose program is there" check.log || fail "temper check: $(cat check.log)"
echo "$agent" | sed 's/^environment=//' > agent.yaml
head -2 calculator/test.jsonl > few.jsonl
"$temper" generate --model warm/final --input few.jsonl --num-samples 2 --max-new-tokens 48 --environment agent.yaml --output episodes.jsonl > /dev/null || fail "generate"
[ "$(grep -c '"reward"' episodes.jsonl)" = 4 ] || fail "generate: $(cat episodes.jsonl)"
"$temper" eval --model warm/final --input few.jsonl --num-samples 2 --max-new-tokens 48 --environment agent.yaml --show 0 > /dev/null || fail "eval"

# Sessions of `temper serve`.
touch serve.log
"$temper" serve --model warm/final --port 0 --max-sessions 2 > serve.log 2>&1 & server=$!
address_of serve.log $server || fail "serve: $(cat serve.log)"
cat > sessions.py <<'P'
import os, sys
os.environ.update(OPENAI_BASE_URL=sys.argv[1] + "/v1", OPENAI_API_KEY="sk-temper-a", TEMPER_SESSION="a")
from client import *
def get(path, method="GET"):
    try:
        with opener.open(urllib.request.Request(URL + path, method=method)) as answer: return json.load(answer)
    except urllib.error.HTTPError as e: return {"status": e.code}
first = row["prompt"]
plain = ask(first, seed=5, max_tokens=8)
assert post("/chat/completions", {"messages": first, "seed": 5, "max_tokens": 8}, "sk-other")["choices"][0]["message"] == said(plain)[0], "a session changes what is sampled"
turn = said(plain)[0]
following = ask(first + [turn, user("12")], max_tokens=8, return_token_ids=True, logprobs=True)
stream = urllib.request.Request(URL + "/chat/completions", json.dumps({"messages": first + [turn, user("13")], "max_tokens": 8, "stream": True}).encode(),
                                {"X-Temper-Session": "a", "Content-Type": "application/json"})
text = "".join(json.loads(l[6:])["choices"][0]["delta"].get("content", "") for l in opener.open(stream).read().decode().split("\n") if l.startswith("data: {"))
record = get("/sessions/a")
assert [t["parent"] for t in record["turns"]] == [None, 0, 0] and not record["closed"], record
t = record["turns"]
assert t[1]["token_ids"] == following["choices"][0]["token_ids"] and t[1]["prompt_token_ids"] == following["prompt_token_ids"]
assert t[2]["text"] == text
for next in t[1:]: assert next["prompt_token_ids"][:next["kept"]] == (t[0]["prompt_token_ids"] + t[0]["token_ids"])[:next["kept"]] and next["kept"] == len(t[0]["prompt_token_ids"] + t[0]["token_ids"])
assert all(len(x["logprobs"]) == len(x["token_ids"]) for x in t)
assert post("/sessions/a/reward", {"reward": 0.5}) == {"id": "a", "reward": 0.5} and get("/sessions/a")["reward"] == 0.5
assert post("/sessions/a/reward", {"reward": 1})["status"] == 409 and ask(first)["status"] == 410
for body in ({}, {"reward": None}, {"reward": 1, "rewards": 2}, [1]): assert post("/sessions/a/reward", body)["status"] == 400, body
assert post("/sessions/a/reward", {"reward": "x" * 9999})["status"] == 413
assert post("/chat/completions", {"messages": first}, "sk-temper-" + "x" * 200)["status"] == 400
# Weights that change between two turns: each turn names its own.
before = said(post("/chat/completions", {"messages": first, "max_tokens": 4}, "sk-temper-b"))[0]
with opener.open(urllib.request.Request(URL[:-3] + "/update_weights_from_disk", b'{"model_path": "calculator/model", "weight_version": "two"}', {"Content-Type": "application/json"})) as answer:
    assert json.load(answer)["success"]
after = post("/chat/completions", {"messages": first + [before, user("12")], "max_tokens": 4}, "sk-temper-b")
assert after["system_fingerprint"] == "two"
assert [(t["weight_version"], t["parent"]) for t in get("/sessions/b")["turns"]] == [("initial", None), ("two", 0)], get("/sessions/b")
assert post("/chat/completions", {"messages": first}, "sk-temper-c")["status"] == 429
assert get("/sessions/b", "DELETE") == {"deleted": True} and get("/sessions/b")["status"] == 404
assert "choices" in post("/chat/completions", {"messages": first, "max_tokens": 1}, "sk-temper-c")
P
head -1 calculator/rows.jsonl | python3 sessions.py "$address" || fail "sessions"
kill -TERM $server; wait $server
exit $bad
