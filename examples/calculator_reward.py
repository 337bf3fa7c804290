#!/usr/bin/env python3
"""The reward of configs/tools.yaml: 1 where the policy's last turn is the row's `answer`, and nothing else.

A built-in reward reads all that follows the prompt, the tool's answers too: under `gsm8k` (the last number) the policy
learns to call the tool and then to say nothing. examples/reward.py describes the protocol.
"""
import json
import sys

for line in sys.stdin:
    row = json.loads(line)
    last_turn = row["completion"].rsplit("assistant", 1)[-1]
    print(float(last_turn.strip() == row["answer"]), flush=True)
