#!/usr/bin/env python3
"""An agent that trains with Temper: any program that asks a model by OpenAI's API. This one answers a question with a
calculator.

    temper grpo configs/agent.yaml

Temper starts it for each episode, gives it the row as a line of JSON on its standard input, and answers its chat
completions with the policy. The environment has what OpenAI's clients read, OPENAI_BASE_URL and OPENAI_API_KEY, and
TEMPER_SESSION, the episode's name. An agent that knows how well it did posts {"reward": number} to
OPENAI_BASE_URL/sessions/TEMPER_SESSION/reward, which ends the episode, or writes {"reward": number} as its last line;
else it ends with exit status 0 and `rewards` judge what was sampled.
"""
import json
import os
import re
import sys
import urllib.request

URL = os.environ["OPENAI_BASE_URL"]
TOOLS = [{"type": "function", "function": {
    "name": "calculator", "description": "Computes a product of whole numbers, such as 12*34.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]


def post(path, body):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    # Without proxies: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(URL + path, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def ask(messages):
    """The model's message, with the package `openai` where it is installed (AGENT_USES_OPENAI=1), else by hand."""
    request = {"model": "policy", "messages": messages, "tools": TOOLS}
    if os.environ.get("AGENT_USES_OPENAI"):
        import openai
        return openai.OpenAI().chat.completions.create(**request).choices[0].message.model_dump(exclude_none=True)
    return post("/chat/completions", request)["choices"][0]["message"]


def calculate(arguments):
    try:
        factors = re.fullmatch(r"(\d{1,9})\*(\d{1,9})", str(json.loads(arguments)["expression"]))
        return str(int(factors[1]) * int(factors[2]))
    except (ValueError, KeyError, TypeError):
        return ""


row = json.loads(sys.stdin.readline())
messages = list(row["prompt"])
said = {}
for turn in range(2):
    said = ask(messages)
    messages.append(said)
    calls = said.get("tool_calls") or []
    if not calls:
        break
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": calculate(call["function"]["arguments"])})
right = (said.get("content") or "").strip() == row["answer"]
post("/sessions/" + os.environ["TEMPER_SESSION"] + "/reward", {"reward": 1.0 if right else 0.0})
