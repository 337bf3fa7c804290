#!/usr/bin/env python3
"""Rewards written for verl: a file with compute_score(data_source, solution_str, ground_truth, extra_info) as a reward
command.

    temper grpo run.yaml 'rewards=[{name: score, command: [python3, examples/verl_reward.py, my_reward.py]}]'
    temper grpo run.yaml 'rewards=[{command: [python3, examples/verl_reward.py, my_reward.py, my_function, strict=true]}]'

The function's name stands behind the file (verl's custom_reward_function.name; default: compute_score), then keyword
arguments (reward_kwargs), as JSON or text. Rows are verl's: `data_source`, `reward_model: {ground_truth}` and
`extra_info`; of rows without these the ground truth is `answer`. The function gives a number, a truth value, or an
object with `score`; what it prints goes to standard error.
"""
import contextlib
import importlib.machinery
import importlib.util
import json
import sys


def load(path, name):
    loader = importlib.machinery.SourceFileLoader("custom_reward", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return getattr(module, name)


def keyword(argument):
    key, _, text = argument.partition("=")
    try:
        return key, json.loads(text)
    except json.JSONDecodeError:
        return key, text


def main(path, *rest):
    names = [word for word in rest if "=" not in word]
    keywords = dict(keyword(word) for word in rest if "=" in word)
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        score = load(path, names[0] if names else "compute_score")
        for line in sys.stdin:
            row = json.loads(line)
            truth = row.get("reward_model", {}).get("ground_truth", row.get("answer"))
            found = score(data_source=row.get("data_source"), solution_str=row["completion"], ground_truth=truth,
                          extra_info=row.get("extra_info"), **keywords)
            if isinstance(found, dict):
                found = found["score"]
            print(float(found), file=answers, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
