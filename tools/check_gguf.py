#!/usr/bin/env python3
"""Shows that llama.cpp loads the GGUF files that Temper writes, and computes and tokenizes the same.

usage: tools/check_gguf.py [MODEL ...] [--tokenizer DIR ...] [--texts FILE.jsonl ...] [--limit X] [--temper
build/temper]

Without MODEL, tiny models of random weights stand for every family and every kind of rotary scaling. Compares, in
float32, the log-probability of every token after the first and the likeliest next tokens; exit status 1 where one
differs by more than --limit (1e-3). With --tokenizer (a directory with tokenizer.json) or a MODEL that has one,
compares the ids of built-in texts and of the rows' `text`, `question`, `answer`, `prompt` and `completion`. Needs
llama-cpp-python, numpy and safetensors.

llama.cpp takes gelu from a table of half-precision numbers for arguments between -10 and 10, which moves the
log-probabilities of a Gemma by some 1e-3 (--limit). The tiny Gemmas have arguments beyond that. It also takes "</s>" in
a text for a special token, whatever the tokenizer says.
"""
import argparse
import ctypes
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import llama_cpp as llama
import numpy as np
from safetensors.numpy import load_file, save_file

TEXTS = [
    "", " ", "  ", "\n", "\n\n \n", " leading", "trailing ", "two  spaces   three", "tab\tand\r\nline", "Hello, world!", "I'll we've THEY'RE it's",
    "3.14159 1,000,000 12345678 2024-11-05", "x = [i**2 for i in range(10)]  # squares\n    return x\n", "https://example.org/a?b=c&d=%20#e",
    "naïve café Ångström", "Привет, мир! Как дела?", "你好，世界。今天天气很好", "こんにちは世界、カタカナ", "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם",
    "हिन्दी में एक वाक्य", "ภาษาไทยไม่มีช่องว่าง", "🚀 👩‍👩‍👧‍👦 🏳️‍🌈 ✅", "½ ² № ™ ∑ ∫ √", "a\u00a0b\u2003c\u200bd\u3000e", "<|im_start|>user\nHi<|im_end|>\n",
    "<s>x <bos>y<eos> <unk>", "<0x0A> <0xff>", "▁marker ▁▁ two", "!!!???...---===", "'''\"\"\"```", "ß ẞ ı İ ﬁ ﬂ", "e\u0301 composed later", "𝒳 𝔘 𐍈",
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stderr


def write_rows(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(path):
    return [json.loads(line) for line in open(path)]


class Loaded:
    """A model in llama.cpp, with a float32 cache and without flash attention."""

    def __init__(self, path):
        self.model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path}: llama.cpp does not load it")
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        self.context = llama.llama_init_from_model(self.model, params)

    def log_probabilities(self, tokens):
        """[len(tokens), vocabulary], of what follows each token."""
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        batch = llama.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        if llama.llama_decode(self.context, batch):
            sys.exit("llama_decode failed")
        size = llama.llama_vocab_n_tokens(self.vocabulary)
        logits = np.ctypeslib.as_array(llama.llama_get_logits(self.context), (len(tokens), size)).astype(np.float64)
        llama.llama_batch_free(batch)
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def tokenize(self, text):
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        count = llama.llama_tokenize(self.vocabulary, raw, len(raw), ids, len(ids), False, True)
        return list(ids[:count])

    def close(self):
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)


def export(temper, model, folder, dtype="float32"):
    out = pathlib.Path(folder) / f"{pathlib.Path(model).name}-{dtype}"
    print(run(temper, "export", "--model", str(model), "--output", str(out), "--format", "gguf", "--dtype", dtype), end="")
    return next(out.glob("*.gguf"))


def compare_logits(temper, model, path, folder):
    config = json.load(open(pathlib.Path(model) / "config.json"))
    config = config.get("text_config", config)
    rng = random.Random(0)
    rows = [[rng.randrange(config["vocab_size"]) for _ in range(n)] for n in (2, 7, 33, 200)]
    write_rows(f"{folder}/in.jsonl", [{"tokens": row} for row in rows])
    run(temper, "score", "--model", str(model), "--input", f"{folder}/in.jsonl", "--output", f"{folder}/out.jsonl", "--top-logprobs", "5")
    loaded, worst, least = Loaded(path), 0.0, 0.0
    for row, scored in zip(rows, read_rows(f"{folder}/out.jsonl")):
        after = loaded.log_probabilities(row)
        differences = [abs(after[i, t] - own) for i, (t, own) in enumerate(zip(row[1:], scored["logprobs"]))]
        differences += [abs(after[-1, t] - own) for t, own in scored["next_top"]]
        worst = max(worst, float("inf") if np.isnan(differences).any() else max(differences))
        least = min(least, min(scored["logprobs"]))
    loaded.close()
    return worst, least


def compare_tokens(temper, model, path, texts, folder):
    write_rows(f"{folder}/texts.jsonl", [{"text": text} for text in texts])
    run(temper, "tokenize", "--model", str(model), "--input", f"{folder}/texts.jsonl", "--output", f"{folder}/ids.jsonl")
    loaded, different, uncomposed = Loaded(path), [], 0
    for text, row in zip(texts, read_rows(f"{folder}/ids.jsonl")):
        ids = loaded.tokenize(text)
        if ids == row["tokens"]:
            continue
        if unicodedata.normalize("NFC", text) != text:
            uncomposed += 1  # llama.cpp does not compose
        else:
            different.append((text, row["tokens"], ids))
    loaded.close()
    return different, uncomposed


SMALL = {"vocab_size": 331, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16, "max_position_embeddings": 256, "initializer_range": 0.2, "rms_norm_eps": 1e-5}
WIDE = {"head_dim": 32}  # heads of another size than hidden_size / heads
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "factor": 4.0}
EXPERTS = {"num_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
FACTORS = {"embedding_multiplier": 1.5, "residual_multiplier": 0.7, "attention_multiplier": 0.3, "logits_scaling": 1.4}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 14, "rms_norm_eps": 1e-6}
DEEPSEEK_YARN = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
DELTA_NET = {"initializer_range": 0.1, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "rms_norm_eps": 1e-6}
DELTA_NET_LAYERS = ["full_attention"] + ["linear_attention"] * 3 + ["full_attention"] * 2 + ["linear_attention"]
GEMMA4 = {"sliding_window": 24, "global_head_dim": 32, "vocab_size_per_layer_input": 331}
CONFIGS = {
    "llama": {"model_type": "llama"},
    "llama_bias_wide": {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, **WIDE},
    "llama_llama3": {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "llama_linear": {"model_type": "llama", "rope_scaling": LINEAR},
    "llama_yarn": {"model_type": "llama", "rope_scaling": YARN},
    "qwen2": {"model_type": "qwen2"},
    "qwen2_yarn_factor": {"model_type": "qwen2", "rope_scaling": {**YARN, "attention_factor": 1.3}, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": True, **WIDE},
    "qwen3_untied": {"model_type": "qwen3", "rope_theta": 1000000.0},
    "gemma": {"model_type": "gemma", **WIDE},
    "gemma2": {"model_type": "gemma2", "sliding_window": 24},
    "gemma2_scale": {"model_type": "gemma2", "sliding_window": 24, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
                     "final_logit_softcapping": 8.0, **WIDE},
    "gemma2_no_window": {"model_type": "gemma2", "layer_types": ["full_attention"] * 7},
    "gemma3_no_window": {"model_type": "gemma3_text", "layer_types": ["full_attention"] * 7},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 24, "query_pre_attn_scalar": 16},
    "gemma3_scale_linear": {"model_type": "gemma3_text", "sliding_window": 24, "query_pre_attn_scalar": 24, "rope_scaling": LINEAR, **WIDE},
    "gemma3_pattern": {"model_type": "gemma3_text", "sliding_window": 24, "sliding_window_pattern": 3, "tie_word_embeddings": False},
    "qwen3_moe": {"model_type": "qwen3_moe", **EXPERTS, "norm_topk_prob": True, **WIDE},
    "mixtral": {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 6, "num_experts_per_tok": 2},
    "olmoe": {"model_type": "olmoe", "num_experts": 6, "num_experts_per_tok": 2, "num_key_value_heads": 4, "norm_topk_prob": False},
    "olmoe_tied": {"model_type": "olmoe", "num_experts": 6, "num_experts_per_tok": 2, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "granitemoe": {"model_type": "granitemoe", "num_local_experts": 6, "num_experts_per_tok": 2, "attention_bias": True, **FACTORS},
    "phi3": {"model_type": "phi3"},
    "phi3_longrope": {"model_type": "phi3", "max_position_embeddings": 2048, "original_max_position_embeddings": 512, "partial_rotary_factor": 0.75,
                      "tie_word_embeddings": True,
                      "rope_scaling": {"type": "longrope", "short_factor": [1.1, 1.2, 1.5, 2.0, 3.0, 4.5], "long_factor": [1.5, 2, 3, 5, 7, 9]}},
    "olmo2": {"model_type": "olmo2", "rope_theta": 500000.0},
    "olmo2_tied_yarn": {"model_type": "olmo2", "tie_word_embeddings": True, "rope_scaling": YARN},
    "olmo3_no_window": {"model_type": "olmo3", "layer_types": ["full_attention"] * 7, "rope_scaling": YARN},
    "olmo3": {"model_type": "olmo3", "sliding_window": 24},
    "olmo3_yarn": {"model_type": "olmo3", "sliding_window": 24, "rope_scaling": YARN,
                   "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 3 + ["full_attention", "sliding_attention"]},
    "smollm3": {"model_type": "smollm3", "tie_word_embeddings": False},
    "smollm3_yarn": {"model_type": "smollm3", "rope_scaling": YARN},
    "granite": {"model_type": "granite", "attention_bias": True, "mlp_bias": True, **FACTORS},
    "granite_llama3": {"model_type": "granite", "rope_scaling": LLAMA3, "tie_word_embeddings": True, **FACTORS},
    "glm4": {"model_type": "glm4", **WIDE},
    "glm4_tied": {"model_type": "glm4", "attention_bias": False, "tie_word_embeddings": True},
    "seed_oss": {"model_type": "seed_oss", **WIDE},
    "hunyuan": {"model_type": "hunyuan_v1_dense", "rope_scaling": {"type": "dynamic", "alpha": 20.0, "factor": 1.0}, **WIDE},
    "exaone4": {"model_type": "exaone4", "sliding_window": None, "rope_scaling": LLAMA3},
    "exaone4_windows": {"model_type": "exaone4", "sliding_window": 24, "num_hidden_layers": 64, "initializer_range": 0.1},
    "cohere2": {"model_type": "cohere2", "sliding_window": 24, "logit_scale": 0.3},
    "cohere2_pattern": {"model_type": "cohere2", "sliding_window": 24, "sliding_window_pattern": 3},
    "ministral3": {"model_type": "ministral3", "rope_parameters": {**YARN, "rope_theta": 10000.0, "beta_fast": 4.0, "llama_4_scaling_beta": 0.3}},
    "glm4_moe": {"model_type": "glm4_moe", **EXPERTS, "num_key_value_heads": 2, "routed_scaling_factor": 1.5, "attention_bias": True},
    "glm4_moe_norms": {"model_type": "glm4_moe", **EXPERTS, "use_qk_norm": True, "first_k_dense_replace": 2, "n_shared_experts": 2,
                       "norm_topk_prob": False},
    "glm4_moe_groups": {"model_type": "glm4_moe", **EXPERTS, "n_group": 3, "topk_group": 2},
    "gpt_oss_no_window": {"model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2, "layer_types": ["full_attention"] * 7,
                          "rope_scaling": {**YARN, "truncate": True}, **WIDE},
    "gpt_oss": {"model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 24, "rope_scaling": {**YARN, "truncate": True}, **WIDE},
    "deepseek": {"model_type": "deepseek_v3", **EXPERTS, **LATENT, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5, "rope_scaling": DEEPSEEK_YARN},
    "deepseek_plain_queries": {"model_type": "deepseek_v3", **EXPERTS, **LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "rope_interleave": False,
                               "n_shared_experts": 2, "first_k_dense_replace": 0, "tie_word_embeddings": True},
    "deepseek_wide_values": {"model_type": "deepseek_v3", **EXPERTS, **LATENT, "v_head_dim": 40, "n_group": 1, "topk_group": 1, "rope_interleave": False,
                             "norm_topk_prob": False, "rms_norm_eps": 1e-5, "rope_scaling": {**DEEPSEEK_YARN, "mscale": 0.7, "mscale_all_dim": 1.3}},
    "deepseek_yarn": {"model_type": "deepseek_v3", **EXPERTS, **LATENT, "n_group": 1, "topk_group": 1, "rope_scaling": {**YARN, "attention_factor": 1.3}},
    "deepseek_linear": {"model_type": "deepseek_v3", **EXPERTS, **LATENT, "n_group": 1, "topk_group": 1, "rope_scaling": LINEAR},
    "qwen3_next": {"model_type": "qwen3_next", **EXPERTS, **DELTA_NET, "full_attention_interval": 3, **WIDE},
    "qwen3_next_layers": {"model_type": "qwen3_next", **EXPERTS, **DELTA_NET, "linear_num_value_heads": 3, "linear_num_key_heads": 3,
                          "linear_conv_kernel_dim": 3, "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_scaling": YARN, "partial_rotary_factor": 0.5,
                          "layer_types": DELTA_NET_LAYERS, "shared_expert_intermediate_size": 40},
    "qwen3_5": {"model_type": "qwen3_5_text", **DELTA_NET, "full_attention_interval": 2, **WIDE},
    "qwen3_5_layers": {"model_type": "qwen3_5_text", **DELTA_NET, "linear_num_value_heads": 2, "linear_conv_kernel_dim": 3, "tie_word_embeddings": True,
                       "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0, "rope_scaling": YARN, "layer_types": DELTA_NET_LAYERS},
    "qwen3_5_moe": {"model_type": "qwen3_5_moe_text", **EXPERTS, **DELTA_NET, "shared_expert_intermediate_size": 40, **WIDE},
    "qwen3_5_moe_layers": {"model_type": "qwen3_5_moe_text", **EXPERTS, **DELTA_NET, "linear_num_value_heads": 2, "tie_word_embeddings": True,
                           "partial_rotary_factor": 0.5, "layer_types": DELTA_NET_LAYERS, "shared_expert_intermediate_size": 48},
    "gemma4": {"model_type": "gemma4_text", **GEMMA4, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 8.0},
    "gemma4_layers": {"model_type": "gemma4_text", **GEMMA4, "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 24,
                      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                      "full_attention"]},
    "gemma4_values": {"model_type": "gemma4_text", **GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
                      "tie_word_embeddings": False, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["full_attention"],
                      "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                          "full_attention": {"rope_type": "proportional", "rope_theta": 50000.0, "partial_rotary_factor": 0.5, "factor": 2.0}}},
    "gemma4_experts": {"model_type": "gemma4_text", **GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
                       "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 48},
    "gemma4_linear": {"model_type": "gemma4_text", **GEMMA4, "hidden_size_per_layer_input": 16,
                      "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                          "full_attention": {**LINEAR, "rope_theta": 50000.0, "partial_rotary_factor": 0.5}}},
    "lfm2": {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3},
    "lfm2_untied": {"model_type": "lfm2", "full_attn_idxs": [0, 2, 5], "conv_L_cache": 4, "tie_word_embeddings": False},
}


def make_model(temper, name, config, folder, tokenizer=None):
    made = pathlib.Path(folder) / name
    pathlib.Path(f"{folder}/{name}.json").write_text(json.dumps({**SMALL, **config}))
    run(temper, "init", "--config", f"{folder}/{name}.json", "--output", str(made), *(["--tokenizer", str(tokenizer)] if tokenizer else []))
    weights = load_file(made / "model.safetensors")
    rng = np.random.default_rng(0)
    for key, value in weights.items():  # norms and biases begin as constants, which would hide mistakes
        if value.ndim == 1 or key.endswith("bias"):
            weights[key] = (value + 0.3 * rng.standard_normal(value.shape)).astype(value.dtype)
        elif ("gate_proj" in key or "per_layer_input_gate" in key) and config["model_type"].startswith("gemma"):
            weights[key] = 1e4 * value
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--tokenizer", action="append", default=[])
    parser.add_argument("--texts", action="append", default=[])
    parser.add_argument("--limit", type=float, default=1e-3)
    parser.add_argument("--temper", default="build/temper")
    args = parser.parse_args()
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    texts = list(TEXTS)
    for path in args.texts:
        for row in read_rows(path):
            texts += [row[key] for key in ("text", "question", "answer", "prompt", "completion") if isinstance(row.get(key), str)]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        models = [pathlib.Path(model) for model in args.models]
        if not models:
            models = [make_model(args.temper, name, config, folder) for name, config in CONFIGS.items()]
        for i, directory in enumerate(args.tokenizer):
            file = json.load(open(pathlib.Path(directory) / "tokenizer.json"))
            ids = list(file["model"]["vocab"].values()) + [token["id"] for token in file["added_tokens"]]
            config = {"model_type": "qwen3", "vocab_size": max(ids) + 9, "num_hidden_layers": 1}
            models.append(make_model(args.temper, f"{pathlib.Path(directory).resolve().name}-{i}", config, folder, directory))
        for model in models:
            path = export(args.temper, model, folder)
            worst, least = compare_logits(args.temper, model, path, folder)
            failed |= worst > args.limit
            print(f"{model.name:24} log-probabilities differ by at most {worst:.1e} (the least is {least:.1f}){'  FAILED' if worst > args.limit else ''}")
            if (model / "tokenizer.json").exists():
                different, uncomposed = compare_tokens(args.temper, model, path, texts, folder)
                failed |= bool(different)
                print(f"{model.name:24} {len(texts)} texts, {len(different)} with other ids, {uncomposed} more that are not composed (NFC)")
                for text, own, theirs in different[:3]:
                    print(f"    {text!r}\n      temper    {own}\n      llama.cpp {theirs}")
    sys.exit(1 if failed else 0)


main()
