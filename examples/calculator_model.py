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

CALL, END = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "', '"}}\n</tool_call>'
WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "tool", CALL, END, "*", *"0123456789"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content or '' }}"
            "{%- for call in message.tool_calls or [] %}" + CALL + "{{ call.function.arguments.expression }}" + END + "{%- endfor %}<|im_end|>{%- endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "calculator")
out.mkdir(parents=True, exist_ok=True)
added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
          "special": word.startswith("<|")} for i, word in enumerate(WORDS)]
(out / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "added_tokens": added,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "merges": [], "vocab": {word: i for i, word in enumerate(WORDS)}}}))
(out / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
(out / "config.json").write_text(json.dumps({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": len(WORDS), "hidden_size": 64, "intermediate_size": 192,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "max_position_embeddings": 128, "tie_word_embeddings": True, "eos_token_id": 1}))


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
