#!/usr/bin/env python3
"""Makes tests/golden/models: tiny models of every family, and what transformers and PEFT compute with them.

    python tests/golden/make_model_goldens.py [NAME...]       (torch 2.13, transformers 5.23 and later, peft)

Every directory is a Hugging Face model of random weights (biases and norm weights too, so that nothing is trivially 0 or
1), with expected.safetensors and expected.json:
  sequences, logp       token ids; log p of every token after a sequence's first, the sequences one after another
  grad.NAME             gradients of the mean over all those tokens of -logp
                        (those of a mixture's experts one by one: experts.0.gate_up_proj.weight)
  losses, norms         of ten steps on that mean: torch.optim.AdamW with weight decay on matrices only, after
                        clip_grad_norm_(1.0); the norms are those before clipping
  final_logp            logp after the ten steps
  prompt, greedy        a prompt and its twelve likeliest next tokens
  adapter.logp, ...     the same through the PEFT adapter in adapter/
score/ is a sequence classifier of one label instead, with
  values, grad.NAME     score of every token of every sequence, and the gradients of their mean
  adapter.values        the same through the PEFT adapter in adapter/, which has a head of its own
config_v4.json, where there is one, says the same as config.json with the keys of transformers 4.
Everything is computed in float32 with eager attention, one sequence at a time: no padding, no cache.
"""
import copy
import json
import shutil
import sys
import zlib
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent / "models"
LENGTHS = (23, 3, 14)  # longer than any window below
ADAMW = dict(lr=3e-3, betas=(0.9, 0.98), eps=1e-8)
WEIGHT_DECAY = 0.1
# With seed 107 a perturbation of 1e-7 changes torch's own norms within ten steps by 1e-3: nothing to compare with. So
# it is with most seeds of qwen3_moe, where two experts nearly tie.
SEEDS = dict(llama_yarn=307, qwen3_moe=209, qwen3_5_text=503, qwen3_5=500, qwen3_next=502, qwen3_5_moe_text=504)

SMALL = dict(vocab_size=61, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=12, max_position_embeddings=128, attention_dropout=0.0)


def sized(**changes):
    return {**SMALL, **changes}


def families():
    llama3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    linear = dict(rope_type="linear", rope_theta=300.0, factor=2.5)
    yield ("llama", transformers.LlamaForCausalLM,
           transformers.LlamaConfig(**sized(rope_parameters=llama3, tie_word_embeddings=False, attention_bias=True,
                                            mlp_bias=True, rms_norm_eps=1e-5)),
           dict(rope_theta=500.0, rope_scaling={k: v for k, v in llama3.items() if k != "rope_theta"}))
    yield ("llama_linear", transformers.LlamaForCausalLM,
           transformers.LlamaConfig(**sized(rope_parameters=linear, tie_word_embeddings=True, num_key_value_heads=1,
                                            num_attention_heads=2, rms_norm_eps=1e-5)),
           dict(rope_theta=300.0, rope_scaling=dict(type="linear", factor=2.5)))
    yield ("qwen2", transformers.Qwen2ForCausalLM,
           transformers.Qwen2Config(**{k: v for k, v in sized(
               hidden_size=28, intermediate_size=36, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
               rope_parameters=dict(rope_type="default", rope_theta=1000.0), rms_norm_eps=1e-6).items() if k != "head_dim"}),
           dict(rope_theta=1000.0))
    yield ("qwen3", transformers.Qwen3ForCausalLM,
           transformers.Qwen3Config(**sized(tie_word_embeddings=False,
                                            rope_parameters=dict(rope_type="default", rope_theta=1000.0))), None)
    yield ("gemma", transformers.GemmaForCausalLM,
           transformers.GemmaConfig(**sized(num_attention_heads=3, num_key_value_heads=1,
                                            rope_parameters=dict(rope_type="default", rope_theta=200.0))), None)
    yield ("gemma2", transformers.Gemma2ForCausalLM,
           transformers.Gemma2Config(**sized(num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                                             intermediate_size=20, sliding_window=5, query_pre_attn_scalar=17,
                                             attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                                             rope_parameters=dict(rope_type="default", rope_theta=200.0))), None)
    yield ("gemma3_text", transformers.Gemma3ForCausalLM,
           transformers.Gemma3TextConfig(**sized(
               num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1, hidden_size=20, intermediate_size=18,
               sliding_window=6, query_pre_attn_scalar=15,
               layer_types=["full_attention" if (i + 1) % 3 == 0 else "sliding_attention" for i in range(7)],
               rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=4.0),
                                    sliding_attention=dict(rope_type="default", rope_theta=100.0)))),
           dict(rope_theta=5000.0, rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=4.0),
                sliding_window_pattern=3))
    yarn = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=16, beta_fast=4, beta_slow=1)
    yield ("llama_yarn", transformers.LlamaForCausalLM,
           transformers.LlamaConfig(**sized(rope_parameters=yarn, tie_word_embeddings=False)),
           dict(rope_theta=300.0, rope_scaling={k: v for k, v in yarn.items() if k != "rope_theta"}))
    # Beyond max_position_embeddings no token's rotation would be its own: none of the sequences goes there.
    dynamic = dict(rope_type="dynamic", rope_theta=300.0, factor=4.0)
    yield ("llama_dynamic", transformers.LlamaForCausalLM,
           transformers.LlamaConfig(**sized(rope_parameters=dynamic, tie_word_embeddings=True, max_position_embeddings=23,
                                            num_attention_heads=2, num_key_value_heads=1)),
           dict(rope_theta=300.0, rope_scaling=dict(type="dynamic", factor=4.0)))



# Each made so that what is particular to the family shows: windows shorter than the sequences, both kinds of layers,
# factors that are not 1. Their seeds follow from their names.
def more_families():
    default = dict(rope_type="default", rope_theta=300.0)
    own_heads = {k: v for k, v in SMALL.items() if k != "head_dim"}  # of hidden_size / num_attention_heads
    yield ("mistral", transformers.MistralForCausalLM,
           transformers.MistralConfig(**sized(sliding_window=7, rope_parameters=default)), dict(rope_theta=300.0))
    longrope = dict(rope_type="longrope", short_factor=[1.1, 2.0, 4.5], long_factor=[1.5, 3.0, 9.0])
    yield ("phi3", transformers.Phi3ForCausalLM,
           transformers.Phi3Config(**own_heads | dict(hidden_size=32, sliding_window=9, original_max_position_embeddings=64,
                                                      pad_token_id=0, rope_parameters=longrope | dict(
                                                          rope_theta=300.0, partial_rotary_factor=0.75))),
           dict(rope_theta=300.0, partial_rotary_factor=0.75, rope_scaling=dict(
               type="longrope", short_factor=longrope["short_factor"], long_factor=longrope["long_factor"])))
    yield ("olmo2", transformers.Olmo2ForCausalLM,
           transformers.Olmo2Config(**own_heads | dict(attention_bias=True, rope_parameters=default)), dict(rope_theta=300.0))
    yield ("smollm3", transformers.SmolLM3ForCausalLM,
           transformers.SmolLM3Config(**own_heads | dict(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0], attention_bias=True,
                                                         mlp_bias=True, use_sliding_window=True, sliding_window=5,
                                                         rope_parameters=default)), dict(rope_theta=300.0))
    yield ("granite", transformers.GraniteForCausalLM,
           transformers.GraniteConfig(**own_heads | dict(embedding_multiplier=1.5, logits_scaling=0.8, residual_multiplier=0.7,
                                                         attention_multiplier=0.3, attention_bias=True, mlp_bias=True,
                                                         tie_word_embeddings=True, rope_parameters=default)),
           dict(rope_theta=300.0))
    yield ("glm4", transformers.Glm4ForCausalLM,
           transformers.Glm4Config(**sized(attention_bias=True, rope_parameters=default | dict(partial_rotary_factor=0.5))),
           dict(rope_theta=300.0, partial_rotary_factor=0.5))
    yield ("seed_oss", transformers.SeedOssForCausalLM,
           transformers.SeedOssConfig(**sized(attention_out_bias=True, mlp_bias=True, residual_dropout=0.0,
                                              rope_parameters=default)), dict(rope_theta=300.0))
    yield ("exaone4", transformers.Exaone4ForCausalLM,
           transformers.Exaone4Config(**own_heads | dict(num_hidden_layers=4, sliding_window=6, sliding_window_pattern=2,
                                                         tie_word_embeddings=True, rope_parameters=default)),
           dict(rope_theta=300.0))
    alpha = dict(rope_type="dynamic", alpha=20.0, factor=1.0)
    yield ("hunyuan_v1_dense", transformers.HunYuanDenseV1ForCausalLM,
           transformers.HunYuanDenseV1Config(**sized(attention_bias=True, rope_parameters=alpha | dict(rope_theta=300.0))),
           dict(rope_theta=300.0, rope_scaling=dict(type="dynamic", alpha=20.0, factor=1.0)))
    yield ("cohere2", transformers.Cohere2ForCausalLM,
           transformers.Cohere2Config(**own_heads | dict(num_hidden_layers=4, sliding_window=6, logit_scale=0.7,
                                                         attention_bias=True, layer_types=2 * ["sliding_attention",
                                                                                               "full_attention"],
                                                         rope_parameters=default)),
           dict(rope_theta=300.0, sliding_window_pattern=2))
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4, beta_slow=1)
    yield ("olmo3", transformers.Olmo3ForCausalLM,
           transformers.Olmo3Config(**own_heads | dict(
               num_hidden_layers=4, sliding_window=6,
               rope_parameters=dict(full_attention=yarn | dict(rope_theta=300.0),
                                    sliding_attention=dict(rope_type="default", rope_theta=500000.0)))),
           dict(rope_theta=300.0, rope_scaling=yarn))
    grows = yarn | dict(rope_theta=300.0, original_max_position_embeddings=8, llama_4_scaling_beta=0.4, mscale=1.0,
                        mscale_all_dim=1.0)
    yield ("ministral3", transformers.Ministral3ForCausalLM,
           transformers.Ministral3Config(**sized(tie_word_embeddings=True, rope_parameters=grows)), None)
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=4)
    yield ("mistral3", transformers.Mistral3ForConditionalGeneration,
           transformers.Mistral3Config(text_config=dict(model_type="ministral3", **sized(rope_parameters=grows)),
                                       vision_config=dict(model_type="pixtral", head_dim=8, **vision),
                                       tie_word_embeddings=False), None)
    yield ("gemma3", transformers.Gemma3ForConditionalGeneration,
           transformers.Gemma3Config(
               text_config=sized(num_hidden_layers=3, sliding_window=6, query_pre_attn_scalar=15,
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
               vision_config=dict(model_type="siglip_vision_model", **vision), mm_tokens_per_image=4), None)
    moe = dict(hidden_size=20, num_attention_heads=2, num_key_value_heads=1, num_experts_per_tok=2)
    yield ("qwen3_moe", transformers.Qwen3MoeForCausalLM,
           transformers.Qwen3MoeConfig(**sized(**moe, num_hidden_layers=3, mlp_only_layers=[1], num_experts=5,
                                               moe_intermediate_size=12, norm_topk_prob=False, rope_parameters=default)),
           dict(rope_theta=300.0))
    yield ("mixtral", transformers.MixtralForCausalLM,
           transformers.MixtralConfig(**sized(**moe, num_local_experts=5, intermediate_size=12, sliding_window=6,
                                              rope_parameters=default)), dict(rope_theta=300.0))
    yield ("olmoe", transformers.OlmoeForCausalLM,
           transformers.OlmoeConfig(**own_heads | moe | dict(num_experts=6, intermediate_size=12, norm_topk_prob=True,
                                                             rope_parameters=default)), dict(rope_theta=300.0))
    yield ("granitemoe", transformers.GraniteMoeForCausalLM,
           transformers.GraniteMoeConfig(**own_heads | moe | dict(
               num_local_experts=5, intermediate_size=12, embedding_multiplier=1.5, logits_scaling=0.8, residual_multiplier=0.7,
               attention_multiplier=0.3, tie_word_embeddings=True, rope_parameters=default)), dict(rope_theta=300.0))
    yield ("glm4_moe", transformers.Glm4MoeForCausalLM,
           transformers.Glm4MoeConfig(**sized(**moe, num_hidden_layers=3, n_routed_experts=6, n_shared_experts=1, n_group=3,
                                              topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                              moe_intermediate_size=12, use_qk_norm=True, attention_bias=True, num_mtp_layers=0,
                                              rope_parameters=default | dict(partial_rotary_factor=0.5))),
           dict(rope_theta=300.0, partial_rotary_factor=0.5))
    # The kinds of Gemma 4: with embeddings of the layers and shared keys, with keys as values, and that with experts.
    gemma4 = sized(num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, hidden_size=20, intermediate_size=12,
                   head_dim=8, sliding_window=6, layer_types=2 * ["sliding_attention", "full_attention"], global_head_dim=16)
    yield ("gemma4_text", transformers.Gemma4ForCausalLM,
           transformers.Gemma4TextConfig(**gemma4, num_kv_shared_layers=2, use_double_wide_mlp=True,
                                         vocab_size_per_layer_input=61, hidden_size_per_layer_input=12,
                                         final_logit_softcapping=3.0), None)
    yield ("gemma4", transformers.Gemma4ForConditionalGeneration,
           transformers.Gemma4Config(
               text_config=gemma4 | dict(num_hidden_layers=3, num_key_value_heads=2, num_global_key_value_heads=1,
                                         attention_k_eq_v=True, hidden_size_per_layer_input=0,
                                         layer_types=["sliding_attention", "full_attention", "full_attention"]),
               vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                                  num_key_value_heads=1, head_dim=8, global_head_dim=8, position_embedding_size=4),
               audio_config=None), None)
    yield ("gemma4_text_moe", transformers.Gemma4ForCausalLM,
           transformers.Gemma4TextConfig(**gemma4 | dict(num_hidden_layers=2, num_key_value_heads=2, layer_types=[
               "sliding_attention", "full_attention"]), num_global_key_value_heads=1, attention_k_eq_v=True,
               hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5, top_k_experts=2,
               moe_intermediate_size=16), None)
    # Values are shorter than keys, then longer.
    grouped = own_heads | moe | dict(num_key_value_heads=2, num_hidden_layers=3, n_routed_experts=6, n_shared_experts=2,
                                     n_group=3, topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                     moe_intermediate_size=12, kv_lora_rank=10, num_mtp_layers=0)
    sharp = yarn | dict(mscale=1.0, mscale_all_dim=0.7)
    yield ("deepseek_v3", transformers.DeepseekV3ForCausalLM,
           transformers.DeepseekV3Config(**grouped, q_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=7,
                                         rope_parameters=sharp | dict(rope_theta=300.0)),
           dict(rope_theta=300.0, rope_scaling=sharp))
    yield ("deepseek_v3_whole_queries", transformers.DeepseekV3ForCausalLM,
           transformers.DeepseekV3Config(**grouped, q_lora_rank=None, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=14,
                                         attention_bias=True, rope_interleave=False, norm_topk_prob=False,
                                         rope_parameters=default), dict(rope_theta=300.0))
    frayed = yarn | dict(truncate=False)
    yield ("gpt_oss", transformers.GptOssForCausalLM,
           transformers.GptOssConfig(**sized(**moe, num_local_experts=5, intermediate_size=12,
                                             sliding_window=6, swiglu_limit=0.9, swiglu_alpha=1.3,
                                             rope_parameters=frayed | dict(rope_theta=300.0))),
           dict(rope_theta=300.0, rope_scaling=frayed))
    yield ("lfm2", transformers.Lfm2ForCausalLM,
           transformers.Lfm2Config(**own_heads | dict(
               num_hidden_layers=4, conv_bias=True, conv_L_cache=4, block_multiple_of=4, block_ffn_dim_multiplier=1.3,
               layer_types=2 * ["conv", "full_attention"], rope_parameters=default)), None)
    # The delta net's output is normalized: where a first token's query and key are nearly orthogonal, that would
    # magnify rounding.
    net = sized(rms_norm_eps=0.02, num_hidden_layers=4, full_attention_interval=3, linear_conv_kernel_dim=3, linear_key_head_dim=7,
                linear_value_head_dim=10, linear_num_key_heads=2, linear_num_value_heads=4, head_dim=16, hidden_size=20,
                num_attention_heads=2, num_key_value_heads=1)
    yield ("qwen3_5_text", transformers.Qwen3_5ForCausalLM,
           transformers.Qwen3_5TextConfig(**net, rope_parameters=default | dict(partial_rotary_factor=0.5)), None)
    yield ("qwen3_5", transformers.Qwen3_5ForConditionalGeneration,
           transformers.Qwen3_5Config(
               text_config=net | dict(num_hidden_layers=3, full_attention_interval=2, tie_word_embeddings=True),
               vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=4, out_hidden_size=20,
                                  num_position_embeddings=4),
               tie_word_embeddings=True), None)
    experts = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=8)
    yield ("qwen3_next", transformers.Qwen3NextForCausalLM,
           transformers.Qwen3NextConfig(**net | experts | dict(mlp_only_layers=[1], full_attention_interval=2),
                                        rope_parameters=default | dict(partial_rotary_factor=0.5)), None)
    yield ("qwen3_5_moe_text", transformers.Qwen3_5MoeForCausalLM,
           transformers.Qwen3_5MoeTextConfig(**{k: v for k, v in (net | experts).items() if k != "intermediate_size"} | dict(
               num_hidden_layers=3), rope_parameters=default | dict(partial_rotary_factor=0.5)), None)


def randomize(model, config):
    """Weights large enough that every part of the model shows in its logits."""
    gemma4 = config.model_type.startswith("gemma4")
    one_plus = config.model_type.startswith("gemma") and not gemma4
    delta_net = config.model_type.startswith(("qwen3_5", "qwen3_next"))
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.fill_(0.7 + 0.1 * int(name.split(".")[-2]))
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(0.3 * torch.randn_like(p) + (0.0 if one_plus or delta_net and "linear_attn" not in name else 1.0))
                if gemma4 and ("q_norm" in name or "k_norm" in name):  # its scores have no factor that makes them small
                    p.mul_(0.5)
            elif "embed_tokens" in name:
                p.copy_((0.4 if config.tie_word_embeddings or delta_net else 0.1) * torch.randn_like(p))
            elif ".router." in name and p.ndim == 1:  # that of the input is multiplied by hidden_size ** -0.5
                size = config.hidden_size ** 0.5 if name.endswith("router.scale") else 1
                p.copy_(size * (1 + 0.3 * torch.randn_like(p)))
            elif p.ndim == 1:
                p.copy_(0.3 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (0.8 if delta_net else 1.2) / p.shape[-1] ** 0.5)
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.3 * torch.randn_like(b))


def log_probabilities(model, sequences):
    parts = []
    for ids in sequences:
        x = torch.tensor([ids])
        logits = model(input_ids=x, use_cache=False).logits[0, :-1]
        parts.append(torch.log_softmax(logits.float(), -1).gather(1, x[0, 1:, None])[:, 0])
    return torch.cat(parts)


def greedy(model, prompt, count=12):
    """The likeliest continuation, or None where a near tie would let rounding decide."""
    ids = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            best = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < 1e-3:
            return None
        ids.append(best.indices[0].item())
    return ids[len(prompt):]


def varied_greedy(model, vocabulary):
    """Random weights like to repeat a token: of many prompts, the one with the most varied continuation."""
    prompts = [torch.randint(0, vocabulary, (9,)).tolist() for _ in range(40)]
    found = [(p, g) for p in prompts if (g := greedy(model, p))]
    return max(found, key=lambda pair: len(set(pair[1])))


def gradients(model, sequences):
    model.zero_grad()
    (-log_probabilities(model, sequences).mean()).backward()
    found = {}
    for name, p in model.named_parameters():
        if p.requires_grad and p.grad is not None:
            found |= by_expert(name.replace("model.language_model.", "model."), p.grad, model.config.model_type == "gpt_oss")
    return found


def by_expert(name, value, outputs_last):
    """Experts that are stacked in one parameter [experts, ...] under the names that each of them has here. outputs_last: their
    matrices are [in, out], not [out, in]."""
    layer, _, projection = name.rpartition(".")
    if not layer.endswith(".experts"):
        return {name: value.clone()}
    projection, bias = projection.removesuffix("_bias"), projection.endswith("_bias")
    kind = "bias" if bias else "weight"
    each = [v.T if outputs_last and not bias else v for v in value]
    return {f"{layer}.{i}.{projection}.{kind}": v.clone() for i, v in enumerate(each)}


def train(model, sequences):
    parameters = list(model.parameters())
    groups = [dict(params=[p for p in parameters if p.ndim >= 2], weight_decay=WEIGHT_DECAY),
              dict(params=[p for p in parameters if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses, norms = [], []
    for _ in range(10):
        optimizer.zero_grad()
        loss = -log_probabilities(model, sequences).mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def add_balance(model, sequences, tensors, expected):
    """Of a mixture of experts, transformers' load-balancing loss over all tokens of the sequences, and the gradients of
    -logp's mean plus half of it: aux_loss, aux.grad.NAME (of routers and embeddings)."""
    of_layers = [model(input_ids=torch.tensor([ids]), use_cache=False, output_router_logits=True).router_logits
                 for ids in sequences]
    balance = sys.modules[type(model).__module__].load_balancing_loss_func
    experts = getattr(model.config, "num_local_experts", None) or model.config.num_experts
    aux = balance(tuple(torch.cat(layer) for layer in zip(*of_layers)), experts,
                  model.config.num_experts_per_tok)
    model.zero_grad()
    (-log_probabilities(model, sequences).mean() + 0.5 * aux).backward()
    expected["aux_loss"] = aux.item()
    for name, p in model.named_parameters():
        if "gate.weight" in name or "router.weight" in name or "embed_tokens" in name:
            tensors["aux.grad." + name] = p.grad.clone()


def adapter_by_expert(name, value, config):
    """PEFT's two matrices for the stacked experts of a projection, of which gate_up_proj's are the inner ones."""
    module, _, matrix = name.partition(".experts.")
    if not matrix:
        return [(name, value)]
    projection = "gate_up_proj" if matrix.startswith("base_layer.") else "down_proj"
    matrix = matrix.removeprefix("base_layer.")
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    each = (value.view(experts, -1, value.shape[1]) if "lora_A" in matrix else
            value.view(value.shape[0], -1, experts).permute(2, 0, 1))
    return [(f"{module}.experts.{i}.{projection}.{matrix}", part.clone()) for i, part in enumerate(each)]


def add_adapter(model, directory, sequences, tensors):
    layers, experts = ["q_proj", "v_proj", "down_proj"], {}
    if hasattr(model.config, "num_experts_per_tok"):
        experts = dict(target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
    if getattr(model.config, "enable_moe_block", False):
        layers = ["q_proj", "down_proj", "router.proj"]
        experts = dict(target_parameters=["experts.gate_up_proj", "experts.down_proj"])
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=layers, task_type="CAUSAL_LM", **experts)
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_" in name:
                p.copy_(0.3 * torch.randn_like(p))
    adapted.save_pretrained(directory / "adapter")
    file = directory / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": ""}, indent=2) + "\n")
    (directory / "adapter" / "README.md").unlink(missing_ok=True)
    tensors["adapter.logp"] = log_probabilities(adapted, sequences).detach()
    for name, grad in gradients(adapted, sequences).items():
        name = name.removeprefix("base_model.model.").replace(".default.", ".")
        for own, part in adapter_by_expert(name, grad, model.config):
            tensors["adapter.grad." + own] = part


def old_config(directory, changes):
    config = json.loads((directory / "config.json").read_text())
    dtype = config["dtype"]
    for key in ("rope_parameters", "layer_types", "_sliding_window_pattern", "dtype"):
        config.pop(key, None)
    config.update(changes, torch_dtype=dtype, transformers_version="4.51.0")
    (directory / "config_v4.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(seed, name, cls, config, v4):
    torch.manual_seed(seed)
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    config.pad_token_id = config.bos_token_id = config.eos_token_id = None
    text = config.get_text_config()
    text.pad_token_id = text.bos_token_id = text.eos_token_id = None
    if name == "gemma4":  # whose class asks for one
        text.pad_token_id = 0
    config._attn_implementation = "eager"
    model = cls(config).eval()
    for module in model.modules():  # padding, of which there is none here, would have no gradient
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    randomize(model, config)
    if name == "qwen2":  # the one whose file is bfloat16; buffers (rotary frequencies) stay float32 in what computes
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.bfloat16())
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(directory)
    else:
        model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)

    sequences = [torch.randint(0, text.vocab_size, (n,)).tolist() for n in LENGTHS]
    tensors = {"logp": log_probabilities(model, sequences).detach()}
    if v4:
        old_config(directory, v4)
        again = HERE / "v4"
        shutil.copytree(directory, again)
        (again / "config_v4.json").rename(again / "config.json")
        old = cls.from_pretrained(again, attn_implementation="eager", dtype=torch.float32)
        assert torch.equal(log_probabilities(old, sequences), tensors["logp"]), name
        shutil.rmtree(again)
    tensors |= {"grad." + k: v for k, v in gradients(model, sequences).items()}
    prompt, likeliest = varied_greedy(model, text.vocab_size)
    expected = dict(sequences=sequences, prompt=prompt, greedy=likeliest, weight_decay=WEIGHT_DECAY, **ADAMW)
    if hasattr(config, "num_experts_per_tok") and hasattr(sys.modules[cls.__module__], "load_balancing_loss_func"):
        add_balance(model, sequences, tensors, expected)
    if name in ("qwen3", "qwen3_moe", "gemma4_text_moe"):
        twin = cls.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32)
        add_adapter(twin, directory, sequences, tensors)
    expected["losses"], expected["norms"] = train(model, sequences)
    tensors["final_logp"] = log_probabilities(model, sequences).detach()
    save_file({k: v.contiguous() for k, v in tensors.items()}, directory / "expected.safetensors")
    (directory / "expected.json").write_text(json.dumps(expected) + "\n")
    for file in directory.rglob("*.*"):
        file.chmod(0o644)
    print(name, sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()) // 1000, "KB",
          expected["losses"][0], expected["losses"][-1], expected["norms"][0], expected["greedy"])


def scores(model, sequences):
    """The score of every token: the head over the body's hidden states, which the class pools to the last one's."""
    base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    parts = []
    for ids in sequences:
        x = torch.tensor([ids])
        parts.append(base.score(base.model(input_ids=x, use_cache=False).last_hidden_state)[0, :, 0])
        assert torch.equal(model(input_ids=x, use_cache=False).logits[0, 0], parts[-1][-1])
    return torch.cat(parts)


def make_scalar(seed):
    torch.manual_seed(seed)
    directory = HERE / "score"
    shutil.rmtree(directory, ignore_errors=True)
    config = transformers.Qwen3Config(**sized(tie_word_embeddings=False, num_labels=1,
                                              rope_parameters=dict(rope_type="default", rope_theta=1000.0)))
    config._attn_implementation = "eager"
    model = transformers.Qwen3ForSequenceClassification(config).eval()
    randomize(model, config)
    model.save_pretrained(directory)
    sequences = [torch.randint(0, config.vocab_size, (n,)).tolist() for n in LENGTHS]
    values = scores(model, sequences)
    values.mean().backward()
    tensors = {"values": values.detach()}
    tensors |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters()}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "up_proj"],
                                                         task_type="SEQ_CLS"))
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if p.requires_grad:
                p.copy_(0.3 * torch.randn_like(p))
    adapted.save_pretrained(directory / "adapter")
    file = directory / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": ""}, indent=2) + "\n")
    (directory / "adapter" / "README.md").unlink(missing_ok=True)
    tensors["adapter.values"] = scores(adapted, sequences).detach()
    save_file({k: v.contiguous() for k, v in tensors.items()}, directory / "expected.safetensors")
    (directory / "expected.json").write_text(json.dumps(dict(sequences=sequences)) + "\n")
    for file in directory.rglob("*.*"):
        file.chmod(0o644)
    print("score", values[:4].tolist(), tensors["adapter.values"][:4].tolist())


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    chosen = sys.argv[1:]
    for seed, family in enumerate(families()):
        if not chosen or family[0] in chosen:
            make(SEEDS.get(family[0], 100 + seed), *family)
    for family in more_families():
        if not chosen or family[0] in chosen:
            make(SEEDS.get(family[0], zlib.crc32(family[0].encode())), *family)
    if not chosen or "score" in chosen:
        make_scalar(200)
