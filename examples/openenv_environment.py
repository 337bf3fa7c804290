#!/usr/bin/env python3
"""Environments of OpenEnv, which are servers, as Temper's (needs `pip install openenv-core`).

    temper grpo run.yaml 'environment={command: [python3, examples/openenv_environment.py, "http://127.0.0.1:8000", message, text]}'

The second argument names the field of an action that takes what the policy says, the third the field of an observation
that becomes a message of the user (the whole observation as JSON where it is left out). A row's `reset` (a map) goes to
reset(). Each episode has a connection of its own, so the server must allow as many at once as there are (its
max_concurrent_envs).
"""
import json
import sys

from openenv.core.generic_client import GenericEnvClient

url, action_field = sys.argv[1:3]
observation_field = sys.argv[3] if len(sys.argv) > 3 else None
episodes = {}


def message(observation):
    content = observation[observation_field] if observation_field else json.dumps(observation)
    return [{"role": "user", "content": str(content)}]


def answer(request):
    episode = request["episode"]
    if request["type"] == "reset":
        episodes[episode] = GenericEnvClient(base_url=url).sync()
        episodes[episode].connect()
        return {"messages": message(episodes[episode].reset(**request["row"].get("reset", {})).observation)}
    result = episodes[episode].step({action_field: request["completion"]})
    return {"messages": message(result.observation), "reward": float(result.reward or 0), "done": bool(result.done)}


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close":
        client = episodes.pop(request["episode"], None)
        if client:
            client.close()
    else:
        print(json.dumps(answer(request)), flush=True)
