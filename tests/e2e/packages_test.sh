#!/usr/bin/env bash
# The examples that bring environments of Python packages, against the real packages: each is skipped, by name, where
# its package is not installed for the Python of TEMPER_TEST_PYTHON (python3). $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
examples=$TEMPER_SOURCE_DIR/examples
python=${TEMPER_TEST_PYTHON:-python3}
has() { "$python" -c "import $1" 2> /dev/null || { echo "skipped: $1 is not installed"; return 1; }; }
# The lines of two episodes, side by side; a wrong guess and the right one.
talk() {
  printf '%s\n' '{"episode":1,"type":"reset","row":{"seed":7,"reset":{"seed":7}}}' '{"episode":2,"type":"reset","row":{"seed":8,"reset":{"seed":8}}}' \
    '{"episode":1,"type":"step","completion":"3","tool_calls":[]}' '{"episode":2,"type":"step","completion":"8","tool_calls":[]}' \
    '{"episode":2,"type":"close"}' '{"episode":1,"type":"step","completion":"7","tool_calls":[]}' '{"episode":1,"type":"close"}'
}
expected='{"messages": [{"role": "user", "content": "guess"}]}
{"messages": [{"role": "user", "content": "guess"}]}
{"messages": [{"role": "user", "content": "no"}], "reward": 0.0, "done": false}
{"messages": [{"role": "user", "content": "yes"}], "reward": 1.0, "done": true}
{"messages": [{"role": "user", "content": "yes"}], "reward": 1.0, "done": true}'

if has gymnasium; then
  cat > guess_gym.py <<'P'
import gymnasium
class Guess(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Text(100)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed); self.secret = str(seed % 10); return "guess", {}
    def step(self, action):
        right = action == self.secret
        return ("yes" if right else "no"), float(right), right, False, {}
gymnasium.register("Guess-v0", entry_point=Guess)
P
  [ "$(talk | PYTHONPATH=. "$python" "$examples/gymnasium_environment.py" guess_gym:Guess-v0)" = "$expected" ] || fail "gymnasium"
  printf '%s\n' '{"episode":1,"type":"reset","row":{"seed":7}}' '{"episode":1,"type":"step","completion":"hit","tool_calls":[]}' '{"episode":1,"type":"step","completion":"I say 0","tool_calls":[]}' |
    "$python" "$examples/gymnasium_environment.py" Blackjack-v1 > blackjack || fail "Blackjack: $?"
  grep -q "That is no action: Discrete(2)" blackjack && tail -1 blackjack | grep -q '"done": true' || fail "Blackjack: $(cat blackjack)"
fi

if has openenv.core; then
  port=$(free_port)
  cat > guess_server.py <<'P'
import sys, uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
class Say(Action): message: str
class Heard(Observation): text: str
class Guess(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret = str(seed % 10); return Heard(text="guess")
    def step(self, action, timeout_s=None, **kwargs):
        right = action.message == self.secret
        return Heard(text="yes" if right else "no", reward=float(right), done=right)
    @property
    def state(self): return State()
uvicorn.run(create_fastapi_app(Guess, Say, Heard, max_concurrent_envs=4), port=int(sys.argv[1]), log_level="warning")
P
  "$python" guess_server.py "$port" > server.log 2>&1 & server=$!
  comes_true "$python" -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2> /dev/null || fail "the server: $(tail -3 server.log)"
  [ "$(talk | "$python" "$examples/openenv_environment.py" "http://127.0.0.1:$port" message text)" = "$expected" ] || fail "openenv"
  kill $server
  wait $server 2> /dev/null
fi

if has verifiers.clients; then
  cat > guess_env.py <<'P'
import verifiers as vf
from datasets import Dataset
class Guess(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **rest):
        right = messages[-1].content == state["answer"]
        reply = [{"role": "user", "content": "yes" if right else "no"}]
        if right:
            state["final_env_response"] = reply
        return reply
def right(completion, answer): return float(any(m["content"] == answer for m in completion if m["role"] == "assistant"))
def load_environment(last=9):
    rows = [{"prompt": [{"role": "user", "content": "guess"}], "answer": str(i)} for i in range(last + 1)]
    return Guess(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[right]), max_turns=4)
P
  env() { PYTHONPATH=. "$python" "$examples/verifiers_environment.py" guess-env "$@" 2> verifiers.log; }
  [ "$(env --rows --arguments '{"last": 2}' | grep -c '"answer": "[012]"')" = 3 ] || fail "verifiers: rows: $(tail -3 verifiers.log)"
  env --rows > verifiers.rows
  row() { sed -n "$(($1 + 1))p" verifiers.rows; }
  printf '%s\n' "{\"episode\":1,\"type\":\"reset\",\"row\":$(row 7)}" "{\"episode\":2,\"type\":\"reset\",\"row\":$(row 8)}" \
    '{"episode":1,"type":"step","completion":"3","tool_calls":[]}' '{"episode":2,"type":"step","completion":"8","tool_calls":[]}' \
    '{"episode":2,"type":"close"}' '{"episode":1,"type":"step","completion":"7","tool_calls":[]}' '{"episode":1,"type":"close"}' | env > answers
  cmp - answers <<'A' || fail "verifiers: $(cat answers; tail -3 verifiers.log)"
{"messages": []}
{"messages": []}
{"messages": [{"role": "user", "content": "no"}], "reward": 0.0, "done": false}
{"reward": 1.0, "done": true}
{"reward": 1.0, "done": true}
A
fi
exit $bad
