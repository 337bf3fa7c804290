#!/usr/bin/env python3
"""Makes tests/golden/config.json: what transformers makes of config.json files.

    python tests/golden/make_config_goldens.py        (torch 2.13, transformers 5.23)

configs   what a family's config class fills in, for configs that say little: only their model_type, and the official
          Gemma 3 files, whose text_config leaves out what the class's defaults are
rope      rotary inverse frequencies and the factor of cosines and sines, by transformers' own functions
"""
import json
from pathlib import Path

import torch
import transformers
from transformers.models.lfm2.modeling_lfm2 import Lfm2MLP
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = Path(__file__).resolve().parent
FIELDS = ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps "
          "initializer_range tie_word_embeddings attention_bias mlp_bias max_position_embeddings query_pre_attn_scalar "
          "attn_logit_softcapping final_logit_softcapping hidden_act hidden_activation sliding_window layer_types "
          "rope_parameters attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale "
          "no_rope_layers").split()
CLASSES = dict(llama="Llama", qwen2="Qwen2", qwen3="Qwen3", gemma="Gemma", gemma2="Gemma2", gemma3_text="Gemma3Text",
               mistral="Mistral", phi3="Phi3", olmo2="Olmo2", olmo3="Olmo3", smollm3="SmolLM3", granite="Granite", glm4="Glm4",
               seed_oss="SeedOss", exaone4="Exaone4", hunyuan_v1_dense="HunYuanDenseV1", cohere2="Cohere2",
               ministral3="Ministral3", qwen3_moe="Qwen3Moe", mixtral="Mixtral",
               olmoe="Olmoe", granitemoe="GraniteMoe", glm4_moe="Glm4Moe", gemma4_text="Gemma4Text", deepseek_v3="DeepseekV3",
               gpt_oss="GptOss", lfm2="Lfm2", qwen3_5_text="Qwen3_5Text", qwen3_next="Qwen3Next",
               qwen3_5_moe_text="Qwen3_5MoeText")
WINDOW_IN_EVERY_LAYER = ("mistral", "ministral3", "phi3")


def resolved(config):
    config = getattr(config, "text_config", None) or config
    config.allow_global_per_layer_attribute_access = True  # Gemma 4: the layers with a window
    found = {key: getattr(config, key, None) for key in FIELDS}
    found["head_dim"] = getattr(config, "qk_head_dim", None) or found["head_dim"] or config.hidden_size // config.num_attention_heads
    found["rms_norm_eps"] = found["rms_norm_eps"] or getattr(config, "norm_eps", None) or config.layer_norm_eps
    if config.model_type == "gemma4_text":
        found["attention_multiplier"] = 1.0
    if config.model_type == "qwen3_5_moe_text":  # which has experts in every layer
        found["intermediate_size"] = config.moe_intermediate_size
    if config.model_type == "lfm2":
        with torch.device("meta"):
            found["intermediate_size"] = Lfm2MLP(config).w1.out_features
        found["hidden_act"] = "silu"
    # Of attention's output: a key of its own, or the one of q, k and v, which GLM-4 reads for these alone.
    shared = found["attention_bias"] and config.model_type != "glm4"
    found["output_bias"] = bool(getattr(config, "attention_out_bias", shared))
    if config.model_type in WINDOW_IN_EVERY_LAYER and config.sliding_window:
        found["layer_types"] = ["sliding_attention"] * config.num_hidden_layers
    return found


def configs():
    for model_type, name in CLASSES.items():
        yield {"model_type": model_type}
    # num_key_value_heads that is null is as many as heads, even where a missing one is not
    yield {"model_type": "qwen2", "num_attention_heads": 16, "num_key_value_heads": None}
    yield {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": None, "max_window_layers": 2}
    yield {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 77, "max_window_layers": 30}
    yield {"model_type": "llama", "use_sliding_window": True, "sliding_window": 77, "max_window_layers": 2}  # not Llama's keys
    yield {"model_type": "gemma", "hidden_act": "gelu"}
    yield {"model_type": "mistral", "sliding_window": None, "head_dim": None}
    yield {"model_type": "phi3", "sliding_window": 77, "partial_rotary_factor": 0.75}
    yield {"model_type": "seed_oss", "attention_bias": False, "attention_out_bias": True, "num_attention_heads": 64,
           "head_dim": None}
    yield {"model_type": "smollm3", "no_rope_layer_interval": 3, "use_sliding_window": True, "sliding_window": 77}
    yield {"model_type": "cohere2", "sliding_window_pattern": 3, "attention_bias": True}
    yield {"model_type": "exaone4", "sliding_window": 77, "sliding_window_pattern": 5}
    yield {"model_type": "granite", "attention_multiplier": 0.2, "logits_scaling": 8.0, "embedding_multiplier": 12.0,
           "residual_multiplier": 0.22}
    yield {"model_type": "gemma4", "text_config": dict(model_type="gemma4_text", num_hidden_layers=35, num_kv_shared_layers=20,
                                                       hidden_size=1536, num_key_value_heads=1, use_double_wide_mlp=True)}
    yield {"model_type": "lfm2", "block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0, "hidden_size": 1024,
           "num_hidden_layers": 6, "num_attention_heads": 16, "full_attn_idxs": [2, 5], "tie_embedding": True}
    yield {"model_type": "lfm2", "block_auto_adjust_ff_dim": False, "intermediate_size": 6656}
    yield {"model_type": "qwen3_5", "text_config": dict(model_type="qwen3_5_text", num_hidden_layers=6,
                                                        full_attention_interval=3, partial_rotary_factor=0.5)}
    scaling = {"factor": 8.0, "rope_type": "linear"}
    text = dict(model_type="gemma3_text", rope_scaling=scaling, sliding_window=1024)
    for changes in (dict(hidden_size=2560, intermediate_size=10240, num_hidden_layers=34),
                    dict(hidden_size=3840, intermediate_size=15360, num_attention_heads=16, num_hidden_layers=48,
                         num_key_value_heads=8),
                    dict(head_dim=128, hidden_size=5376, intermediate_size=21504, num_attention_heads=32,
                         num_hidden_layers=62, num_key_value_heads=16, query_pre_attn_scalar=168)):
        yield {"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "initializer_range": 0.02,
               "model_type": "gemma3", "text_config": text | changes}


def load(config):
    name = {"gemma3": "Gemma3Config", "gemma4": "Gemma4Config", "qwen3_5": "Qwen3_5Config"}.get(config["model_type"], CLASSES.get(config["model_type"], "") + "Config")
    return getattr(transformers, name).from_dict(json.loads(json.dumps(config)))


def ropes():
    yield dict(rope_type="default")
    yield dict(rope_type="linear", factor=2.5)
    yield dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=512)
    yield dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096)
    yield dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=64, mscale=0.707, mscale_all_dim=1.0,
               beta_fast=8, beta_slow=2)
    yield dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False)
    yield dict(rope_type="yarn", factor=2.0, attention_factor=0.9)  # original: max_position_embeddings
    yield dict(rope_type="dynamic", factor=3.0)


def rope(parameters, head_dim, theta):
    config = transformers.LlamaConfig(hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim,
                                      max_position_embeddings=16384,
                                      rope_parameters=parameters | {"rope_theta": theta})
    if parameters["rope_type"] == "default":
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
        frequency, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        frequency, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    return dict(parameters=parameters, head_dim=head_dim, rope_theta=theta, max_position_embeddings=16384,
                inverse_frequency=[float(x) for x in frequency], attention_factor=float(factor))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    out = dict(configs=[dict(config=c, resolved=resolved(load(c))) for c in configs()],
               rope=[rope(p, d, t) for p in ropes() for d, t in ((64, 10000.0), (12, 500.0))])
    (HERE / "config.json").write_text(json.dumps(out) + "\n")
    print(len(out["configs"]), "configs,", len(out["rope"]), "rotary embeddings,", (HERE / "config.json").stat().st_size, "bytes")
