#!/usr/bin/env python3
"""A coding environment: the policy reads and writes files until their tests pass.

    temper grpo run.yaml 'environment={command: [python3, examples/coding_environment.py], sandbox: true}'

An episode begins with the row's "files", a map of names and texts, and is judged by its "tests", a list of [expression,
value]: [["add(2, 3)", 5], ..]. Expressions know what the files define. A turn of the policy is one of

    read NAME
    write NAME, and the file's text in the lines below

and `write` is answered with the tests that fail. The reward is the share of tests that pass: each turn gives what it has
gained. The policy's code runs in processes of its own, which are told the expressions and not the values (a sandbox
hides no files: code that looks for the rows' file finds them there). All of this, the environment too, belongs in a
sandbox.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SECONDS = 20  # for all tests together
# What the code prints must not be taken for a value: those go to the stream that was the output before.
RUNNER = """
import json, os, sys
values = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names, request = {}, json.load(sys.stdin)
for file in request["files"]:
    exec(compile(open(file).read(), file, "exec"), names)
for expression in request["tests"]:
    try:
        value = json.dumps(eval(expression, names))
    except Exception as error:
        value = json.dumps(f"{type(error).__name__}: {error}")
    print(value, file=values, flush=True)
"""
INSTRUCTIONS = """Fix the files so that their tests pass. Answer with one command: `read NAME`, or `write NAME` and the file's text below it.
"""


class Episode:
    def __init__(self, row):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.tests, self.share = row["tests"], 0
        for name, text in row["files"].items():
            (self.folder / name).write_text(text)

    def values(self):
        """What the expressions are, as JSON; fewer where the code does not end, or ends the process."""
        request = {"files": sorted(p.name for p in self.folder.glob("*.py")), "tests": [test for test, _ in self.tests]}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            try:
                subprocess.run([sys.executable, "-I", "-c", RUNNER], input=json.dumps(request), text=True, cwd=self.folder,
                               stdout=out, stderr=errors, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                errors.write(f"more than {SECONDS} s")
            out.seek(0)
            errors.seek(0)
            return out.read().splitlines(), errors.read()[-500:]

    def step(self, text):
        command = re.match(r"\s*(read|write) (\w[\w.]*)\s*?(?:\n|$)", text)
        if not command:
            return {"messages": say("Answer with `read NAME` or `write NAME`."), "done": False}
        file = self.folder / command[2]
        if command[1] == "read":
            return {"messages": say(file.read_text() if file.exists() else f"There is no {file.name}."), "done": False}
        file.write_text(text[command.end():])
        values, errors = self.values()
        values += ["nothing"] * (len(self.tests) - len(values))
        failed = [f"{test} is {value}, not {json.dumps(right)}" for value, (test, right) in zip(values, self.tests)
                  if value != json.dumps(right)]
        before, self.share = self.share, 1 - len(failed) / len(self.tests)
        told = [f"{len(self.tests) - len(failed)} of {len(self.tests)} tests pass", *failed[:5], errors]
        return {"messages": say("\n".join(told).strip()), "reward": self.share - before, "done": not failed}

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def say(text):
    return [{"role": "user", "content": text}]


def answer(request, episodes):
    name = request["episode"]
    if request["type"] == "reset":
        row = request["row"]
        episodes[name] = Episode(row)
        files = "".join(f"{name}:\n{text}" for name, text in row["files"].items())
        return {"messages": say(INSTRUCTIONS + files)}
    return episodes[name].step(request["completion"])


def main():
    episodes = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["type"] == "close":
            if request["episode"] in episodes:
                episodes.pop(request["episode"]).close()
        else:
            print(json.dumps(answer(request, episodes)), flush=True)


main()
