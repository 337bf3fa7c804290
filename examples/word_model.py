"""What the scripts that make small models share: a tokenizer of whole words, and the config of a small Qwen3."""
import json


def write_tokenizer(directory, words, template):
    """tokenizer.json, in which each of `words` is a token whose id is its place, and the chat template. <|..|> are control tokens."""
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": word.startswith("<|")} for i, word in enumerate(words)]
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "merges": [], "vocab": {word: i for i, word in enumerate(words)}}}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": template}))


def write_config(directory, words, layers, positions):
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": len(words), "hidden_size": 64, "intermediate_size": 192,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "max_position_embeddings": positions, "tie_word_embeddings": True, "eos_token_id": 1}))
