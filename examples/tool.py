#!/usr/bin/env python3
"""A tool as a separate program, in any language; this one counts the words of a text.

    temper grpo run.yaml "environment={tools: [{name: count_words, description: 'Counts the words of a text.', command: [python3,
        examples/tool.py], parameters: {type: object, properties: {text: {type: string}}, required: [text]}}]}"

It is started for each call, with its own TMPDIR. It reads the call's arguments, one line of JSON; what it writes,
without the last line end, is the tool's message. An exit status other than 0 is a failure, which the model is told of.
"""
import json
import sys

print(len(json.load(sys.stdin)["text"].split()))
