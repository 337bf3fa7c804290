#!/usr/bin/env python3
"""Tasksets of verifiers 0.2 and later (its API v1) as Temper's agents (needs `pip install verifiers uv`, and the
taskset's own package).

    python3 examples/verifiers_agent.py TASKSET_ID --rows > rows.jsonl
    temper grpo run.yaml data.train=rows.jsonl 'environment={openai: {command: [python3, examples/verifiers_agent.py, TASKSET_ID]}}'

Temper starts this program for each episode. verifiers then starts its harness, which asks the policy, in a process
beside it; the reward is the sum of what the task's rewards give. `--config` is what verifiers' own config files have in
[env], as JSON: '{"agent": {"harness": {"id": "bash"}}}'. Where it names none, a role has the harness "null", a chat with
the task's tools, and the runtime "subprocess". For verifiers 0.1: examples/verifiers_environment.py.
"""
import argparse
import asyncio
import json
import os
import sys

import verifiers.v1 as vf

LOCAL = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}


def make_environment(taskset, config):
    config = {**config, "taskset": {"id": taskset, **config.get("taskset", {})}}
    roles = [name for name, field in vf.env_config_type(taskset, config.get("id", "")).model_fields.items()
             if isinstance(field.default, vf.AgentConfig)]
    for role in roles:
        config[role] = {**LOCAL, **config.get(role, {})}
    return vf.load_environment(vf.resolve_env_config(config))


async def play(environment, row):
    task = type(environment.taskset).task_type()
    task = task(task.data_type().model_validate(row["task"]), environment.taskset.config.task)
    client = vf.EvalClientConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
    async with environment.serving():
        episode = await environment.run_episode(task, vf.ModelContext("policy", client))
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        sys.exit("verifiers: " + "; ".join(f"{error.type}: {error.message}" for error in errors))
    return sum(trace.reward for trace in episode.traces if trace.agent.trainable)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("taskset")
parser.add_argument("--config", type=json.loads, default={})
parser.add_argument("--rows", action="store_true")
flags = parser.parse_args()
answers, sys.stdout = sys.stdout, sys.stderr  # what tasks print is no answer
environment = make_environment(flags.taskset, flags.config)
if flags.rows:
    for task in environment.taskset:
        prompt = [{"role": "user", "content": task.data.prompt_text}]
        print(json.dumps({"prompt": prompt, "task": task.data.model_dump(mode="json", exclude_none=True)}), file=answers)
else:
    print(json.dumps({"reward": asyncio.run(play(environment, json.loads(sys.stdin.readline())))}), file=answers)
