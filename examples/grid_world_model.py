#!/usr/bin/env python3
"""Makes all that configs/grid_world.yaml trains on: a tokenizer of a few words with a chat template, a config of a
small model, and rows.

    python3 examples/grid_world_model.py grid_world
    temper init --config grid_world/config.json --tokenizer grid_world --output grid_world/model
    temper grpo configs/grid_world.yaml

What the words and the template leave out, the model never sees: it is told "it lies north and east", and learns to say
"north" or "east".
"""
import json
import pathlib
import random
import sys

WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "north", "south", "east", "west", " and ", "it lies ", "wall"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content }}<|im_end|>{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "grid_world")
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
    "rope_theta": 10000.0, "max_position_embeddings": 256, "tie_word_embeddings": True, "eos_token_id": 1}))
random.seed(1)
with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test:
    for i in range(2200):
        row = json.dumps({"prompt": [{"role": "user", "content": "it lies "}], "size": 4, "seed": random.randrange(10**9)})
        print(row, file=rows if i < 2000 else test)
