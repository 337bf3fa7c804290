"""Runs of every verb, for tools/record_runs.py: short, on tiny models whose widths no vector's divides.

A command is a list of arguments; `output_dir=NAME` is added, or where OUT stands, NAME/out.jsonl put.
"""
import random

OUT = "{out}"

SIZES = {"vocab_size": 331, "hidden_size": 36, "intermediate_size": 52, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
         "eos_token_id": 2, "tie_word_embeddings": True}
NET = {"num_hidden_layers": 3, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 9, "linear_value_head_dim": 11}
MODELS = {
    "biased": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **SIZES},
    "teacher": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SIZES, "hidden_size": 44, "num_hidden_layers": 3, "rope_theta": 54321.0},
    "experts": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], **SIZES, "moe_intermediate_size": 20, "num_experts": 6, "num_experts_per_tok": 2},
    "sinks": {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], **SIZES, "tie_word_embeddings": False, "intermediate_size": 20, "num_local_experts": 5,
              "num_experts_per_tok": 2, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
    "net": {"model_type": "qwen3_5_text", **SIZES, **NET, "initializer_range": 0.1},
    "net-experts": {"model_type": "qwen3_next", **SIZES, **NET, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                    "shared_expert_intermediate_size": 20, "initializer_range": 0.1},
    "convolutions": {"model_type": "lfm2", **SIZES, "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 4,
                     "initializer_range": 0.1},
    "latent": {"model_type": "deepseek_v3", **SIZES, "tie_word_embeddings": False, "q_lora_rank": 14, "kv_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "head_dim": 6,
               "v_head_dim": 10, "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
               "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    "exact-gelu": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, "hidden_act": "gelu"},
}


def make_rows(write_rows):
    rng = random.Random(4)
    ids = lambda n: [rng.randrange(3, 331) for _ in range(n)]
    pairs, single = [], []
    for i in range(13):
        # Prompts of many lengths, as sums of gradients over a shared one are where targets could differ.
        prompt, shared = ids(rng.randrange(1, 45)), ids(i % 3)
        sides = [shared + ids(rng.randrange(1, 19)) + [2] for _ in range(2)]
        pairs.append({"prompt_ids": prompt, "chosen_ids": sides[0], "rejected_ids": sides[1]})
        single += [{"prompt_ids": prompt, "completion_ids": side, "label": label} for side, label in zip(sides, (True, False))]
    write_rows("pairs.jsonl", pairs)
    write_rows("single.jsonl", single)
    write_rows("tokens.jsonl", [{"tokens": row["prompt_ids"] + row["chosen_ids"]} for row in pairs])


def runs(sft, grpo, even):
    """Name -> commands. sft, grpo: the arguments of such a run, to add to; even: its reward."""
    lora = ["adapter.method=lora", "adapter.rank=4", "adapter.target_modules=all-linear"]
    common = sft[1:]
    alone = [key for key in grpo[1:] if not key.startswith("rl.max_refills")] + even  # completions are not compared
    rl = [key for key in alone if not key.startswith("rl.group_size")]
    of = lambda model, *keys: [[*sft, f"model.path={model}", *keys]]
    pair = lambda verb, *keys: [[verb, *common, "data.train=pairs.jsonl", "train.max_steps=3", "model.path=llama", *keys]]
    distill = lambda *keys: [["distill", *common, "train.max_steps=3", "model.path=biased", "distill.teacher=teacher", *keys]]
    grpo_of = lambda model, *keys: [[*grpo, *even, f"model.path={model}", *keys]]
    out = {f"sft-{model}": of(model) for model in MODELS if model not in ("teacher", "net-experts")}
    out |= {f"sft-{name}": of("biased", f"optimizer.name={name}") for name in ("muon", "adafactor", "adamw8bit", "lion")}
    out |= {f"sft-{name}": of("qwen3", f"optimizer.schedule={name}", "optimizer.warmup_steps=1") for name in ("wsd", "inverse_sqrt", "polynomial")}
    out |= {
        "sft-cosine": of("biased", "train.max_steps=105", "train.batch_size=1", "optimizer.warmup_steps=0"),
        "sft-noise": of("biased", "train.neftune_alpha=5"),
        "sft-dora": of("biased", *lora, "adapter.use_dora=true"),
        "sft-qlora-nf4": of("llama", "adapter.method=qlora"),
        "sft-lora-int8": of("llama", *lora, "model.storage=int8"),
        "sft-bfloat16-fast": of("llama", "model.dtype=bfloat16", "model.arithmetic=fast"),
        "sft-bfloat16-amx": of("llama", "model.dtype=bfloat16", "model.arithmetic=amx"),
        "sft-nf4-amx": of("llama", "adapter.method=qlora", "model.arithmetic=amx"),
        "sft-nf4-integer": of("llama", "adapter.method=qlora", "model.arithmetic=integer"),
        "sft-int8-integer": of("experts", *lora, "model.storage=int8", "model.arithmetic=integer"),
        "grpo-nf4-integer": grpo_of("llama", "adapter.method=qlora", "model.arithmetic=integer"),
        "sft-router-loss": of("experts", "train.router_aux_loss=0.1"),
        "sft-experts-lora": of("experts", *lora),
        "sft-net-lora": of("net-experts", *lora),
    }
    out |= {f"dpo-{loss}": pair("dpo", f"preference.loss={loss}") for loss in ("sigmoid", "hinge", "ipo", "robust", "simpo", "kto")}
    out["dpo-robust"][0].append("preference.label_smoothing=0.1")
    out |= {
        "dpo-lora": pair("dpo", *lora, "model.path=biased"),
        "dpo-sinks": pair("dpo", "model.path=sinks"),
        "dpo-net": pair("dpo", "model.path=net"),
        "dpo-single": pair("dpo", "data.train=single.jsonl", "preference.loss=kto"),
        "orpo": pair("orpo"),
        "reward": pair("reward", "preference.center_rewards_coefficient=0.01"),
    }
    for strategy in ("logit", "attention_transfer", "attention_projection", "feature_pooling", "feature_projection"):
        out[f"distill-{strategy}"] = distill(f"distill.strategy={strategy}")
    out |= {f"distill-{divergence}": distill(f"distill.divergence={divergence}", "distill.temperature=2") for divergence in ("reverse_kl", "jsd")}
    out["distill-on_policy"] = distill("distill.strategy=on_policy", "data.train=prompts.jsonl", "rollout.max_new_tokens=5")
    out["distill-sinks"] = distill("distill.strategy=attention_transfer", "model.path=sinks")
    for algorithm in ("cispo", "dro", "gdpo"):
        out[algorithm] = grpo_of("qwen3", f"rl.algorithm={algorithm}", "rl.minibatches=2", "rl.iterations=2", "rl.beta=0.1")
    out |= {
        "reinforce_plus_plus": [["grpo", *alone, "rl.algorithm=reinforce_plus_plus", "model.path=qwen3", "rl.minibatches=2", "rl.beta=0.1"]],
        "gspo-correction": grpo_of("qwen3", "rl.algorithm=gspo", "rl.max_staleness=1", "rl.minibatches=2", "rl.importance_correction=mask", "rl.beta=0.1"),
        "grpo-kept": grpo_of("biased", "rollout.top_p=0.8", "rollout.top_k=40", "rl.beta=0.1", "rl.minibatches=2"),
        "grpo-experts": grpo_of("experts", *lora, "rl.minibatches=2"),
        "grpo-net": grpo_of("net", "rl.minibatches=2"),
        "ppo": [["ppo", *rl, "model.path=biased", "rl.minibatches=2", "rl.iterations=2", "rl.beta=0.01"]],
        "ppo-lora": [["ppo", *rl, "model.path=qwen3", *lora, "ppo.share_base=true", "rl.minibatches=2"]],
        "generate": [["generate", "--model", "biased", "--input", "prompts.jsonl", "--output", OUT, "--max-new-tokens", "9", "--num-samples", "2", "--seed", "4"]],
        "generate-net": [["generate", "--model", "net-experts", "--input", "prompts.jsonl", "--output", OUT, "--max-new-tokens", "9", "--top-p", "0.9"]],
        "score": [["score", "--model", "latent", "--input", "tokens.jsonl", "--output", OUT]],
        "score-int8": [["score", "--model", "llama", "--input", "tokens.jsonl", "--output", OUT, "--storage", "int8"]],
    }
    return out
