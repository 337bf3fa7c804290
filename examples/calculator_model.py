#!/usr/bin/env python3
"""Makes all that configs/tools.yaml trains on: a tokenizer of digits and a tool call with a chat template, a config of
a small model, and rows.

    python3 examples/calculator_model.py calculator

A row asks for a product, such as 37*84. The model is too small to multiply: it learns to call the tool `calculator` and
to say its answer. sft.jsonl has conversations with the right call, for a warm-up; rows.jsonl and test.jsonl have
prompts with `answer`, for the reward.
"""
import json
import pathlib
import random
import sys

import word_model

CALL, END = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "', '"}}\n</tool_call>'
WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "tool", CALL, END, "*", *"0123456789"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content or '' }}"
            "{%- for call in message.tool_calls or [] %}" + CALL + "{{ call.function.arguments.expression }}" + END + "{%- endfor %}<|im_end|>{%- endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "calculator")
out.mkdir(parents=True, exist_ok=True)
word_model.write_tokenizer(out, WORDS, TEMPLATE)
word_model.write_config(out, WORDS, layers=2, positions=128)


def question():
    a, b = random.randint(10, 99), random.randint(10, 99)
    return f"{a}*{b}", str(a * b)


def write(name, rows):
    (out / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def warm_up():
    text, answer = question()
    call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": text}}}
    return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "", "tool_calls": [call]},
                         {"role": "tool", "content": answer}, {"role": "assistant", "content": answer}]}


def prompt():
    text, answer = question()
    return {"prompt": [{"role": "user", "content": text}], "answer": answer}


random.seed(1)
write("sft.jsonl", [warm_up() for _ in range(2000)])
write("rows.jsonl", [prompt() for _ in range(2000)])
write("test.jsonl", [prompt() for _ in range(200)])
