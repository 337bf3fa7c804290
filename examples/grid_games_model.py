#!/usr/bin/env python3
"""Makes all that configs/frozen_lake.yaml and configs/sokoban.yaml train on: a tokenizer of moves and cells with a chat
template, a config of a small model, and rows.

    python3 examples/grid_games_model.py frozen_lake
    temper init --config frozen_lake/config.json --tokenizer frozen_lake --output frozen_lake/model
    temper grpo configs/frozen_lake.yaml

A cell is a token, and a turn is one move.
"""
import json
import pathlib
import random
import sys

WORDS = ["<|im_start|>", "<|im_end|>", "user", "assistant", "Left", "Down", "Right", "Up", "\n", "#", "_", "O", "√", "X", "P", "S", "G"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{{ message.content }}<|im_end|>{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")
FIELDS = {"frozen_lake": {"size": 3, "p": 0.8}, "sokoban": {"size": [5, 6], "boxes": 1, "max_steps": 12}}

game = sys.argv[1] if len(sys.argv) > 1 else "frozen_lake"
out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else game)
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
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "max_position_embeddings": 1024, "tie_word_embeddings": True, "eos_token_id": 1}))
random.seed(1)
with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test:
    for i in range(4200):
        row = json.dumps({"prompt": [{"role": "user", "content": "\n"}], "seed": random.randrange(10**9), "instructions": False, **FIELDS[game]})
        print(row, file=rows if i < 4000 else test)
