#!/usr/bin/env python3
"""Environments of Gymnasium whose observations and actions are texts, or numbers that are written as texts, as Temper's
(needs `pip install gymnasium`).

    temper grpo run.yaml 'environment={command: [python3, examples/gymnasium_environment.py, "MODULE:ENVIRONMENT_ID"]}'

MODULE, which registers the environment, may be left out. A row's `seed` (whole number) and `options` (map) go to
reset(). An observation becomes a message of the user; an action is what the policy says: the text, or for a space of
numbers (Discrete) the last number in it. A turn without a valid action gets an observation that says so, and takes no
step.
"""
import importlib
import json
import re
import sys

import gymnasium

module, _, name = sys.argv[1].rpartition(":")
if module:
    importlib.import_module(module)
episodes = {}


def message(observation):
    text = observation if isinstance(observation, str) else json.dumps(observation, default=lambda x: x.tolist())
    return [{"role": "user", "content": text}]


def action_of(space, said):
    """None where the text is no action."""
    if isinstance(space, gymnasium.spaces.Text):
        return said.strip() or None
    numbers = re.findall(r"-?\d+", said)
    action = int(numbers[-1]) if numbers else None
    return action if action is not None and space.contains(action) else None


def answer(request):
    episode = request["episode"]
    if request["type"] == "reset":
        episodes[episode] = gymnasium.make(name)
        row = request["row"]
        observation, _ = episodes[episode].reset(seed=row.get("seed"), options=row.get("options"))
        return {"messages": message(observation)}
    environment = episodes[episode]
    action = action_of(environment.action_space, request["completion"])
    if action is None:
        return {"messages": message("That is no action: " + str(environment.action_space)), "reward": 0, "done": False}
    observation, reward, terminated, truncated, _ = environment.step(action)
    return {"messages": message(observation), "reward": float(reward), "done": bool(terminated or truncated)}


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "close":
        environment = episodes.pop(request["episode"], None)
        if environment:
            environment.close()
    else:
        print(json.dumps(answer(request)), flush=True)
