#!/usr/bin/env bash
# Images in reinforcement learning and distillation: the sampler is the trainer to the bit, a run that is killed within a
# rollout batch ends with the uninterrupted run's bits, ranks and servers sample what one process does, replay trains as
# the run did; what is wrong is one line. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1 TEMPER_TIMEOUT_SECONDS=120
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT
python3 "$(dirname "$0")/images_make.py" "$TEMPER_SOURCE_DIR" || exit 1
even_reward
python3 - <<'P'
import json
uri = open("uri").read()
ask = lambda *parts: [{"role": "user", "content": [*parts, {"type": "text", "text": "how many?"}]}]
with open("prompts.jsonl", "w") as out:
    for i in range(12):
        row = [{"prompt": ask({"type": "image"}), "images": ["a.png"]}, {"prompt": ask({"type": "image", "image": uri})},
               {"prompt": ask({"type": "image"}, {"type": "image"}), "images": ["sub/b.png", "a2.png"]},
               {"prompt": [{"role": "user", "content": "none?"}]}][i % 4]
        out.write(json.dumps(row | {"answer": [{"role": "assistant", "content": "one"}]}) + "\n")
P
cat > run.yaml <<'Y'
model: {path: text}
data: {train: prompts.jsonl}
train: {max_steps: 6, save_every: 1, micro_batch_tokens: 128}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {group_size: 3, prompts_per_rollout: 4, minibatches: 2, beta: 0.02}
rollout: {max_new_tokens: 7, temperature: 0.9, ignore_eos: true}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y
grpo() { "$temper" grpo run.yaml output_dir="$1" "${@:2}" > "$1.log" 2>&1 || fail "$1: $(tail -3 "$1.log")"; }
rollouts() { cat "$1"/rollouts/step-*.jsonl; }
# as ONE OTHER: the same completions. weights ONE OTHER: bit for bit.
as() { diff <(rollouts "$1") <(rollouts "$2") > /dev/null || fail "$2 samples otherwise than $1"; }
weights() { cmp "$1"/final/*model.safetensors "$2"/final/*model.safetensors || fail "$2 leaves other weights than $1"; }

grpo whole
zero_diffs whole/metrics.jsonl
[ "$(value whole/metrics.jsonl sampler_trainer_max_abs_diff | wc -l)" = 3 ] || fail "a rollout without its comparison"
[ -s whole/final/preprocessor_config.json ] || fail "final/ does not see"
python3 - <<'P' || fail "rollout files do not name their images"
import json, pathlib
directory, found = pathlib.Path("whole/rollouts"), set()
for line in open(directory / "step-1.jsonl"):
    row = json.loads(line)
    images = row.get("images", [])
    found |= {len(images)} | {image.startswith("images/") for image in images}
    assert (7 in row["prompt_tokens"]) == bool(images) and 7 not in row["completion_tokens"], row
    for image in images:
        assert not image.startswith("/") and (directory / image).read_bytes()[:4] == b"\x89PNG", image
assert found == {0, 1, 2, True, False}, found
P
# Other pictures of the same sizes give other samples.
sed 's/"a.png"/"a2.png"/' prompts.jsonl > other.jsonl
grpo other data.train=other.jsonl train.max_steps=1
cmp -s {whole,other}/rollouts/step-1.jsonl && fail "the picture changes nothing"

# Killed between the two updates of a batch, or while batches are sampled ahead.
counted() { numbers "$1/metrics.jsonl" | sed 's/"rollout_wait_seconds": [^,}]*,*//' | tr -s ' '; }
for options in '' 'rl.max_staleness=3 rollout.update=continue'; do
  rm -rf full part
  grpo full $options
  "$temper" grpo run.yaml output_dir=part $options > part.log 2>&1 & victim=$!
  until_rows part 3 $victim
  kill -KILL $victim 2> /dev/null
  wait $victim
  grpo part $options
  weights full part
  cmp <(counted full) <(counted part) || fail "metrics of a resumed run ($options)"
  as full part
  zero_diffs full/metrics.jsonl
done

# Ranks that train, and ranks that sample and compute the reference.
grpo two --nproc 2 train.max_steps=1
cmp whole/rollouts/step-1.jsonl two/rollouts/step-1.jsonl || fail "two ranks sample other completions"
zero_diffs two/metrics.jsonl
grpo roles --nproc 3 'roles={rollout: [1], reference: [2]}'
as whole roles
weights whole roles

# A file of the run is its batch: with the images of its rows.
grpo first train.max_steps=2
grpo replayed train.max_steps=2 rl.replay=first/rollouts/step-1.jsonl rl.on_mismatch=stop
weights first replayed

# A server, which gets the images with the ids.
"$temper" serve --model text --port 0 > serve.log 2>&1 &
if address_of serve.log $!; then
  grpo served rollout.server.urls=["$address"]
  zero_diffs served/metrics.jsonl
else
  fail "serve: $(cat serve.log)"
fi

# A critic sees, and so does a reward model that is one; a text model gets the text.
"$temper" ppo run.yaml output_dir=ppo > ppo.log 2>&1 || fail "ppo: $(tail -3 ppo.log)"
zero_diffs ppo/metrics.jsonl
[ -s ppo/critic/preprocessor_config.json ] || fail "the critic does not see"
"$temper" ppo run.yaml output_dir=ppo2 ppo.critic=ppo/critic train.max_steps=1 > ppo.log 2>&1 || fail "ppo.critic: $(tail -3 ppo.log)"
grpo judged 'rewards=[{model: ppo/critic}]' train.max_steps=1
grpo elsewhere --nproc 2 'roles={reward: [1]}' 'rewards=[{model: ppo/critic}]' train.max_steps=1
as judged elsewhere
sed -n 4p prompts.jsonl > texts.jsonl
"$temper" ppo run.yaml output_dir=blind model.vision=none data.train=texts.jsonl train.max_steps=1 > ppo.log 2>&1 || fail "blind: $(tail -3 ppo.log)"
grpo told 'rewards=[{model: blind/critic}]' train.max_steps=1

# An environment shows pictures.
cat > gallery.py <<'G'
import json, sys
turn = {}
for line in sys.stdin:
    request = json.loads(line)
    episode = request["episode"]
    if request["type"] == "close":
        continue
    n = turn[episode] = turn.get(episode, -1) + 1 if request["type"] == "step" else 0
    picture = {"type": "image", "image": ["sub/b.png", "a2.png"][n % 2]}
    print(json.dumps({"messages": [{"role": "user", "content": [picture, {"type": "text", "text": "and?"}]}], "reward": 0,
                      "done": n == 2}), flush=True)
G
show='environment={command: [python3, gallery.py], max_turns: 3, workers: 2}'
grpo shown "$show" rollout.max_new_tokens=90 rollout.ignore_eos=false train.max_steps=4
zero_diffs shown/metrics.jsonl
python3 - <<'P' || fail "rollout files do not name an environment's images"
import json
rows = [json.loads(line) for line in open("shown/rollouts/step-1.jsonl")]
assert any(len(row["images"]) >= 3 and 7 in row["completion_tokens"] for row in rows), [row.get("images") for row in rows]
assert all(7 not in [t for t, m in zip(row["completion_tokens"], row["completion_mask"]) if m] for row in rows)
P
grpo shown2 "$show" rollout.max_new_tokens=90 rollout.ignore_eos=false train.max_steps=2
grpo shown-again train.max_steps=2 rl.replay=shown2/rollouts/step-1.jsonl rl.on_mismatch=stop
weights shown2 shown-again

# An agent shows pictures in its requests.
cat > agent.py <<'A'
import base64, json, os, sys, urllib.request
json.load(sys.stdin)
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def show(name):
    uri = "data:image/png;base64," + base64.b64encode(open(name, "rb").read()).decode()
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "and?"}]}
messages, said = [], ""
for name in ("a.png", "sub/b.png", "a.png"):
    messages.append(show(name))
    body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 12}).encode()
    request = urllib.request.Request(base + "/chat/completions", body, {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    messages.append(json.load(urllib.request.urlopen(request, timeout=100))["choices"][0]["message"])
    said += messages[-1]["content"] or ""
print(json.dumps({"reward": len(said) % 3}))
A
asks='environment={openai: {command: [python3, agent.py]}, max_turns: 3, workers: 3}'
grpo asked "$asks" rollout.max_new_tokens=120 rollout.ignore_eos=false train.max_steps=4
zero_diffs asked/metrics.jsonl
numbers asked/metrics.jsonl | grep -q '"environment_[a-z]*": [1-9]' && fail "agents failed: $(tail -1 asked/metrics.jsonl)"
python3 - <<'P' || fail "rollout files do not name an agent's images"
import json, pathlib
rows = [json.loads(line) for line in open("asked/rollouts/step-1.jsonl")]
assert all(row["turns"] == 3 and len(row["images"]) == 3 for row in rows), [(row["turns"], row.get("images")) for row in rows]
assert all(row["images"][0] == row["images"][2] != row["images"][1] for row in rows), rows[0]["images"]
assert {path.name for path in pathlib.Path("asked/rollouts/images").iterdir()} == {pathlib.Path(i).name for row in rows for i in row["images"]}
P
grpo asked2 "$asks" rollout.max_new_tokens=120 rollout.ignore_eos=false train.max_steps=2
cmp {asked,asked2}/rollouts/step-1.jsonl || fail "agents that show pictures are sampled otherwise again"
grpo asked-again train.max_steps=2 rl.replay=asked2/rollouts/step-1.jsonl rl.on_mismatch=stop
weights asked2 asked-again
sed 's/"a.png", "sub/"a2.png", "sub/' agent.py > other.py
grpo asked3 "${asks/agent.py/other.py}" rollout.max_new_tokens=120 rollout.ignore_eos=false train.max_steps=1
cmp -s {asked,asked3}/rollouts/step-1.jsonl && fail "an agent's picture changes nothing"

# A teacher that sees.
cat > distill.yaml <<'Y'
model: {path: text}
data: {train: prompts.jsonl, eval: prompts.jsonl, columns: {completion: answer}}
train: {max_steps: 3, batch_size: 4, eval_every: 3}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
distill: {teacher: whole/final}
metrics: {sinks: [jsonl]}
Y
for strategy in logit on_policy; do
  options=distill.strategy=$strategy
  [ $strategy = on_policy ] && options="$options rollout.max_new_tokens=5"
  "$temper" distill distill.yaml output_dir=$strategy $options > distill.log 2>&1 || fail "distill $strategy: $(tail -3 distill.log)"
  [ "$(value $strategy/metrics.jsonl distill_loss | wc -l)" = 3 ] || fail "distill $strategy: no losses"
  "$temper" distill distill.yaml output_dir=blind-$strategy $options data.train=other.jsonl > distill.log 2>&1 || fail "distill $strategy: $(tail -3 distill.log)"
  cmp -s $strategy/final/model.safetensors blind-$strategy/final/model.safetensors && fail "distill $strategy: the picture changes nothing"
done

# refused TEXT OPTIONS...: exit 2, and one line that has the text.
refused() {
  local status=0
  "$temper" grpo run.yaml output_dir=refused "${@:2}" > refused.out 2> refused.log || status=$?
  [ $status = 2 ] && [ "$(grep -c . refused.log)" = 1 ] && grep -qF "$1" refused.log || fail "expected one line with '$1': $status $(cat refused.log)"
}
row() { echo "$1" > wrong.jsonl; }
row '{"prompt":[{"role":"user","content":[{"type":"image"}]}],"images":["none.png"]}'
refused 'wrong.jsonl:1: image 1: none.png: no such file' data.train=wrong.jsonl
row '{"prompt":[{"role":"user","content":[{"type":"image"}]}]}'
refused 'wrong.jsonl:1: the row has 0 images' data.train=wrong.jsonl
row '{"prompt":[{"role":"user","content":"<|image_pad|>"}]}'
refused 'wrong.jsonl:1' data.train=wrong.jsonl
refused 'which this model does not see' model.vision=none
refused 'do not take beside token ids' rollout.server.urls=[http://127.0.0.1:9] rollout.server.kind=sglang
grep '"images"' first/rollouts/step-1.jsonl > seen.jsonl
sed 's/"images": *\[[^]]*\],*//' seen.jsonl > bare.jsonl
refused 'bare.jsonl:1: found' rl.replay=bare.jsonl train.max_steps=1
sed 's/"images": *\[[^]]*\]/"images":["gone.png"]/' seen.jsonl > gone.jsonl
refused 'gone.jsonl:1: image 1: gone.png: no such file' rl.replay=gone.jsonl train.max_steps=1
# A damaged picture behind the batches that are trained is found before the first of them, and by check.
checks() { "$temper" check grpo run.yaml output_dir=checked "$@" > check.log 2>&1; }
checks rl.replay=first/rollouts/step-1.jsonl || fail "check of a replay: $(cat check.log)"
python3 - <<'P'
import json, pathlib
directory = pathlib.Path("first/rollouts")
rows = [json.loads(line) for line in open(directory / "step-1.jsonl")]
shown = [row for row in rows if row.get("images")]
whole = (directory / shown[0]["images"][0]).read_bytes()
(directory / "cut.png").write_bytes(whole[:len(whole) * 2 // 3])
shown[0]["images"][0] = "cut.png"
with open(directory / "cut.jsonl", "w") as out:
    for line in open(directory / "step-1.jsonl"):
        out.write(line)
    out.write(json.dumps(shown[0]) + "\n")
P
line=$(wc -l < first/rollouts/cut.jsonl)
refused "cut.jsonl:$line: image 1: " rl.replay=first/rollouts/cut.jsonl train.max_steps=1
[ ! -e refused/metrics.jsonl ] || fail "a step was made of a file with a damaged picture"
checks rl.replay=first/rollouts/cut.jsonl train.max_steps=1 && fail "check finds no damaged picture"
grep -qF "cut.jsonl:$line: image 1: " check.log || fail "check: $(cat check.log)"
# Servers would resize by their own settings.
refused 'data.max_image_pixels: found 4096 with rollout.server' rollout.server.urls=[http://127.0.0.1:9] data.max_image_pixels=4096
checks rollout.server.urls=[http://127.0.0.1:9] data.max_image_pixels=4096 && fail "check lets sizes pass that servers do not know"
grep -qF 'data.max_image_pixels: found 4096 with rollout.server' check.log || fail "check does not name sizes that servers do not know"
exit $bad
