#!/usr/bin/env python3
"""A reward as a separate program, in any language; this one rewards answers whose length is close to the one asked for.

    temper grpo run.yaml 'rewards=[{name: brevity, command: [python3, examples/reward.py]}]'
    echo '{"completion": "a few words", "words": 3}' | python3 examples/reward.py

The program is started once for each worker (`workers`, 2 by default), with its own TMPDIR, in the directory where
temper was started, and lives as long as the run. For every completion it reads one line from standard input, a JSON
object with
  completion                        its text; absent where the model has no tokenizer
  prompt_tokens, completion_tokens  ids
  id                                the number of this request
and all fields of the prompt's row by their names, `prompt` among them. It answers with one line on standard output: a
number, or {"reward": number}; an object may repeat the `id`, which a program that answers from several threads must do.
Anything else is a malformed answer, a slow one (`timeout_seconds`) a timeout; `on_failure` says what follows. Standard
error is free for your own messages.
"""
import json
import sys


def reward(row):
    """1 for `words` words (a field of the row; 20 where it has none), falling linearly to 0 at none and at twice as many."""
    wanted = row.get("words", 20)
    found = len(row["completion"].split())
    return max(0.0, 1 - abs(found - wanted) / wanted)


for line in sys.stdin:
    # Without the flush the answer stays in a buffer, and Temper waits for it until the timeout.
    print(reward(json.loads(line)), flush=True)
