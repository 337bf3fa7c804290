#!/usr/bin/env python3
"""An environment as a separate program, in any language; in this one the policy guesses a number from hints.

    temper grpo run.yaml 'environment={command: [python3, examples/environment.py]}'

The program is started as several workers (`environment.workers`), each with its own TMPDIR, in the directory where
temper was started, and lives as long as the run. Each worker serves several episodes at once, told apart by `episode`.
It reads one JSON object per line:
  {"episode": 7, "type": "reset", "row": {..}}     the row of the prompt, with all its fields; answered by {"messages": [..]}, which
                                                   are added to the prompt, and by "tools" where the model may call some
  {"episode": 7, "type": "step", "completion": "..", "tool_calls": [{"name", "arguments"}, ..]}
                                                   a turn of the model, without special tokens; "tool_call_errors" lists
                                                   calls that could not be read. Answered by {"messages": [..],
                                                   "reward": number, "done": true or false}
  {"episode": 7, "type": "close"}                  not answered
and answers with one line each, in order. "done" must be in the answer to a step, "messages" in every answer but the
last. An answer may repeat "episode", which is then compared; other fields are ignored, but one that looks like a
misspelt "reward" is an error. A tool is {"type": "function", "function": {"name", "description", "parameters"}}. An
episode's reward is the sum of all its rewards. Anything else is a malformed answer, a slow one
(`environment.timeout_seconds`) a timeout; `environment.on_failure` says what follows. When a worker ends, its other
episodes are replayed in a new one from their resets on, so make the answers depend on the row and the turns alone.
"""
import json
import re
import sys

secrets = {}


def say(text):
    return [{"role": "user", "content": text}]


def answer(request):
    episode = request["episode"]
    if request["type"] == "reset":
        secrets[episode] = int(request["row"].get("secret", 50))
        return {"messages": say("Guess my number, from 1 to 100.")}
    guesses = re.findall(r"\d+", request["completion"])
    if not guesses:
        return {"messages": say("Say a number."), "done": False}
    guess, secret = int(guesses[-1]), secrets[episode]
    if guess == secret:
        return {"messages": [], "reward": 1, "done": True}
    return {"messages": say("Higher." if guess < secret else "Lower."), "done": False}


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close":
        secrets.pop(request["episode"], None)
    else:
        # Without the flush the answer stays in a buffer, and Temper waits for it until the timeout.
        print(json.dumps(answer(request)), flush=True)
