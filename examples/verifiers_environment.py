#!/usr/bin/env python3
"""Environments of verifiers as Temper's (needs `pip install "verifiers<0.2"`, and the environment's own package).

    python3 examples/verifiers_environment.py ENVIRONMENT_ID --rows > rows.jsonl
    temper grpo run.yaml data.train=rows.jsonl 'environment={command: [python3, examples/verifiers_environment.py, ENVIRONMENT_ID]}'

ENVIRONMENT_ID is what verifiers.load_environment() takes; `--arguments '{"key": value}'` behind it go to it as well.
--rows writes the environment's data, whose rows are what an episode begins with: prompt, answer, info. Its reward is
that of the environment's rubric, given when the episode ends; rewards that compare the episodes of a group are not to
be had, and an environment that rewrites earlier turns is refused. Packages without chat turns run as an agent instead
(examples/agent.py).
"""
import argparse
import asyncio
import json
import sys

import verifiers
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, ToolCall


class Policy(Client):
    """The client that verifiers asks: an episode's questions and answers pass through two queues."""

    def __init__(self):
        super().__init__(None)
        self.asked, self.said = asyncio.Queue(), asyncio.Queue()

    async def get_response(self, prompt, model, sampling_args, tools=None, **rest):
        await self.asked.put((prompt, tools or []))
        message = await self.said.get()
        return Response(id="", created=0, model=model, message=message)

    async def unused(self, *arguments, **named):
        raise NotImplementedError

    setup_client = to_native_tool = to_native_prompt = get_native_response = unused
    raise_from_native_response = from_native_response = close = unused


class Episode:
    def __init__(self, environment, row):
        self.policy = Policy()
        row = {"example_id": 0, **row}
        self.known = len(row["prompt"])  # messages that both sides have
        self.rollout = asyncio.ensure_future(environment.run_rollout(row, self.policy, "policy", {}))

    async def next(self):
        """What the environment asks, or its reward at the end."""
        asked = asyncio.ensure_future(self.policy.asked.get())
        await asyncio.wait([asked, self.rollout], return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            output = self.rollout.result()
            if output.get("error"):
                raise RuntimeError(f"verifiers: {output['error']}")
            return {"reward": float(output["reward"] or 0), "done": True}
        prompt, tools = asked.result()
        messages = [m if isinstance(m, dict) else m.model_dump(exclude_none=True) for m in prompt]
        if len(messages) < self.known:
            raise RuntimeError("the environment rewrites earlier turns; run it as an agent (examples/agent.py)")
        new, self.known = messages[self.known:], len(messages) + 1  # and the policy's answer
        functions = [{"type": "function", "function": {k: getattr(t, k) for k in ("name", "description", "parameters")}} for t in tools]
        return {"messages": new, **({"tools": functions} if functions else {})}

    async def say(self, text, calls):
        called = [ToolCall(id=str(i), name=call["name"], arguments=json.dumps(call["arguments"])) for i, call in enumerate(calls)]
        await self.policy.said.put(ResponseMessage(content=text, tool_calls=called or None, is_truncated=False,
                                                   finish_reason="tool_calls" if called else "stop"))
        answer = await self.next()
        answer.pop("tools", None)
        return answer if "done" in answer else {**answer, "reward": 0.0, "done": False}


async def serve(environment):
    episodes = {}
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        name = request["episode"]
        if request["type"] == "close":
            episode = episodes.pop(name, None)
            if episode:
                episode.rollout.cancel()
            continue
        if request["type"] == "reset":
            episodes[name] = Episode(environment, request["row"])
            answer = await episodes[name].next()
        else:
            answer = await episodes[name].say(request["completion"], request["tool_calls"])
        print(json.dumps(answer), file=replies, flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("environment")
parser.add_argument("--arguments", type=json.loads, default={})
parser.add_argument("--rows", action="store_true")
flags = parser.parse_args()
replies, sys.stdout = sys.stdout, sys.stderr  # what environments print is no answer
loaded = verifiers.load_environment(flags.environment, **flags.arguments)
if flags.rows:
    for row in loaded.get_dataset():
        print(json.dumps({k: v for k, v in row.items() if v is not None}), file=replies)
else:
    asyncio.run(serve(loaded))
