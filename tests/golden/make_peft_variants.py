#!/usr/bin/env python3
"""Makes tests/golden/peft_variants.json: what PEFT writes for each option that changes an adapter's files, and what it
computes with them.

    python tests/golden/make_peft_variants.py [NAME...]      (torch 2.13, transformers 5.23, peft 0.21)

  sequences         token ids
  defaults          adapter_config.json where a case does not say otherwise
  cases.NAME:
    model           the base model, a directory of tests/golden/models
    config          what its adapter_config.json has in other values than the defaults
    tensors         shapes by name of adapter_model.safetensors, whose values are those of values() below, in the names'
                    order; "base_layer.weight" is the base model's, a tied head is what the embeddings are
    logp            log p of every token after a sequence's first, as PEFT computes it with the directory
    refused         instead of logp: what the program does not do, by the text that its message has to name
Everything is computed in float32 with eager attention, one sequence at a time.
"""
import json
import sys
import tempfile
from pathlib import Path

import numpy
import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
SEQUENCES = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 58], [7, 59, 0, 12], [44, 8, 15, 16, 23, 42, 8, 31, 60, 2]]
ATTENTION = ["q_proj", "v_proj"]
SOME = ["q_proj", "down_proj"]
TYPES = dict(IA3=dict(target_modules=["q_proj", "down_proj"], feedforward_modules=["down_proj"]),
             LoHa=dict(r=2, target_modules=ATTENTION), LoKr=dict(r=2, target_modules=ATTENTION),
             OFT=dict(r=2, oft_block_size=0, target_modules=ATTENTION), BOFT=dict(boft_block_size=4, target_modules=ATTENTION),
             Vera=dict(r=2, target_modules=["q_proj"]), FourierFT=dict(n_frequency=4, target_modules=["q_proj"]),
             HRA=dict(r=2, target_modules=ATTENTION), LNTuning=dict(target_modules=["input_layernorm"]),
             AdaLora=dict(init_r=2, target_r=2, total_step=9, target_modules=ATTENTION),
             TrainableTokens=dict(token_indices=[1, 2]), PromptTuning=dict(num_virtual_tokens=2),
             PrefixTuning=dict(num_virtual_tokens=2), PromptEncoder=dict(num_virtual_tokens=2, encoder_hidden_size=4))


def lora(model, refused=None, **options):
    return dict(model=model, refused=refused, options=dict(r=2, lora_alpha=3) | options)


CASES = dict(
    # ranks and scales by layer
    rank_pattern=lora("llama", target_modules=SOME, rank_pattern={"layers.0.self_attn.q_proj": 4, "down_proj": 1}),
    alpha_pattern=lora("qwen2", target_modules=SOME, alpha_pattern={"q_proj": 7, r".*\.1\..*down_proj": 0.5}),
    patterns_order=lora("qwen3", target_modules=SOME, rank_pattern={"layers.1.self_attn.q_proj": 4, "q_proj": 3},
                        alpha_pattern={"layers.1.self_attn.q_proj": 5, "q_proj": 9}, use_rslora=True),
    patterns_dora=lora("llama_linear", target_modules=SOME, use_dora=True, rank_pattern={"down_proj": 3},
                       alpha_pattern={"(q|k)_proj": 11}),
    patterns_anchored=lora("llama", target_modules=SOME, rank_pattern={r"^model\.layers\.1\.mlp\.down_proj": 5}),
    patterns_phi3=lora("phi3", target_modules="all-linear", alpha_pattern={"gate_up_proj": 30}),
    patterns_glm4=lora("glm4", target_modules="all-linear", rank_pattern={"gate_up_proj": 3},
                       alpha_pattern={"layers.0.mlp.gate_up_proj": 30}),
    patterns_head=lora("gemma2", target_modules=["q_proj", "lm_head"], rank_pattern={"lm_head": 3},
                       alpha_pattern={"lm_head": 1}),
    patterns_experts=lora("qwen3_moe", target_modules=["q_proj"], alpha_pattern={"layers.0.mlp.experts.gate_up_proj": 20,
                                                                                 "mlp.experts.down_proj": 9, "q_proj": 1},
                          rank_pattern={"layers.1.mlp.experts.down_proj": 3, "layers.1.mlp.experts.gate_up_proj": 1},
                          target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    patterns_router=lora("mixtral", target_modules=["q_proj"], target_parameters=["mlp.gate.weight"],
                         rank_pattern={"mlp.gate": 4, "q_proj": 1}, alpha_pattern={"gate.weight": 9}),
    # which layers
    regex=lora("llama", target_modules=r".*layers\.1\..*(q|up)_proj"),
    layer_list=lora("qwen3", target_modules=ATTENTION, layers_to_transform=[1], layers_pattern="layers"),
    layer_number=lora("qwen2", target_modules=ATTENTION, layers_to_transform=0),
    excluded=lora("llama", target_modules="all-linear", exclude_modules=["o_proj", "layers.0.mlp.down_proj"]),
    whole_path=lora("llama", target_modules=["model.layers.0.mlp.down_proj", "layers.1.self_attn.k_proj"]),
    one_weight=lora("llama", target_modules=["v_proj"], target_parameters=["q_proj.weight"]),
    all_linear=lora("smollm3", target_modules="all-linear"),
    all_linear_phi3=lora("phi3", target_modules="all-linear", use_rslora=True),
    all_linear_glm4_moe=lora("glm4_moe", target_modules="all-linear"),
    all_linear_gpt_oss=lora("gpt_oss", target_modules="all-linear"),
    all_linear_granitemoe=lora("granitemoe", target_modules="all-linear"),
    all_linear_deepseek=lora("deepseek_v3", target_modules="all-linear"),
    all_linear_qwen3_next=lora("qwen3_next", target_modules="all-linear"),
    all_linear_qwen3_5=lora("qwen3_5_text", target_modules="all-linear"),
    all_linear_qwen3_5_moe=lora("qwen3_5_moe_text", target_modules="all-linear"),
    all_linear_lfm2=lora("lfm2", target_modules="all-linear"),
    all_linear_gemma3=lora("gemma3_text", target_modules="all-linear"),
    all_linear_gemma4=lora("gemma4_text", target_modules="all-linear"),
    all_linear_olmoe=lora("olmoe", target_modules="all-linear"),
    # stacked experts and routers
    experts_qwen3_next=lora("qwen3_next", target_modules=["in_proj_qkvz", "out_proj"],
                            target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]),
    experts_qwen3_5=lora("qwen3_5_moe_text", target_modules=["in_proj_qkv", "shared_expert_gate"],
                         target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]),
    experts_gpt_oss=lora("gpt_oss", target_modules=["q_proj"],
                         target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "router.weight"]),
    experts_granitemoe=lora("granitemoe", target_modules=["q_proj"],
                            target_parameters=["experts.gate_up_proj", "experts.down_proj", "router.weight"]),
    experts_glm4_moe=lora("glm4_moe", target_modules=["o_proj"], use_rslora=True,
                          target_parameters=["experts.gate_up_proj", "layers.1.mlp.experts.down_proj", "gate.weight"]),
    experts_deepseek=lora("deepseek_v3", target_modules=["q_a_proj", "kv_b_proj"],
                          target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    experts_down=lora("mixtral", target_modules=[], target_parameters=["experts.down_proj"]),
    experts_gate_up=lora("gpt_oss", target_modules=[], target_parameters=["experts.gate_up_proj"]),
    experts_one_layer=lora("olmoe", target_modules=["k_proj"],
                           target_parameters=["layers.1.mlp.experts.gate_up_proj", "layers.0.mlp.experts.down_proj"]),
    router_alone=lora("qwen3_moe", target_modules=[], target_parameters=["mlp.gate.weight"]),
    router_one_layer=lora("mixtral", target_modules=["k_proj"], target_parameters=["layers.1.mlp.gate.weight"]),
    router_deepseek=lora("deepseek_v3", target_modules=["o_proj"], target_parameters=["mlp.gate.weight"]),
    router_gpt_oss=lora("gpt_oss", target_modules=[], target_parameters=["mlp.router.weight"]),
    shared_expert=lora("deepseek_v3", target_modules=["shared_experts.down_proj"]),
    shared_weight=lora("deepseek_v3", target_modules=["o_proj"],
                       target_parameters=["shared_experts.down_proj.weight", "layers.0.mlp.up_proj.weight"],
                       alpha_pattern={"down_proj.weight": 9}),
    # whole modules, heads
    save_head=lora("llama", target_modules=SOME, modules_to_save=["lm_head"]),
    save_embedding=lora("llama", target_modules=SOME, modules_to_save=["embed_tokens"]),
    save_tied_both=lora("llama_linear", target_modules=SOME, modules_to_save=["embed_tokens"],
                        ensure_weight_tying=True),
    save_tied_head=lora("llama_linear", target_modules=SOME, modules_to_save=["lm_head"], ensure_weight_tying=True),
    save_tied_apart=lora("llama_linear", "ensure_weight_tying", target_modules=SOME, modules_to_save=["embed_tokens"],
                         ensure_weight_tying=True),
    save_norm=lora("llama", "modules_to_save", target_modules=SOME, modules_to_save=["norm"]),
    save_layer=lora("llama", "modules_to_save", target_modules=["q_proj"], modules_to_save=["layers.1.mlp.down_proj"]),
    save_tied=lora("llama_linear", "ensure_weight_tying", target_modules=SOME, modules_to_save=["embed_tokens"]),
    head_both=lora("llama", target_modules=["lm_head", "k_proj"], modules_to_save=["embed_tokens"]),
    head_tied=lora("llama_linear", target_modules=["lm_head"]),
    head_dora=lora("llama", "lm_head", target_modules=["lm_head", "k_proj"], use_dora=True),
    embedding=lora("llama", "embed_tokens", target_modules=["embed_tokens", "q_proj"]),
    embedding_tied=lora("llama_linear", "embed_tokens", target_modules=["embed_tokens", "lm_head"],
                        ensure_weight_tying=True),
    embedding_weight=lora("llama", "embed_tokens", target_modules=[], target_parameters=["embed_tokens.weight"]),
    tokens=lora("llama", target_modules=["q_proj"], trainable_token_indices=[1, 7]),
    tokens_tied=lora("llama_linear", target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [1, 7]}),
    tokens_order=lora("llama", target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [9, 1, 7, 3]}),
    tokens_head=lora("llama", target_modules=["q_proj"],
                     trainable_token_indices={"lm_head": [5, 2], "embed_tokens": [9, 1]}),
    tokens_tied_both=lora("llama_linear", target_modules=["q_proj"],
                          trainable_token_indices={"lm_head": [7, 1], "embed_tokens": [7, 1]}),
    tokens_tied_apart=lora("llama_linear", "trainable_token_indices", target_modules=["q_proj"],
                           trainable_token_indices={"embed_tokens": [1, 7], "lm_head": [2, 7]}),
    tokens_tied_head=lora("llama_linear", "trainable_token_indices", target_modules=["q_proj"],
                          trainable_token_indices={"lm_head": [1, 7]}),
    tokens_other=lora("llama", "trainable_token_indices", target_modules=["q_proj"],
                      trainable_token_indices={"o_proj": [1]}),
    conv=lora("lfm2", target_modules=["in_proj", "out_proj", "w2"]),
    multimodal_gemma3=lora("gemma3", target_modules=["q_proj", "down_proj"]),
    multimodal_gemma4=lora("gemma4", target_modules=r".*language_model.*(q_proj|down_proj)"),
    text_of_qwen3_5=lora("qwen3_5", target_modules="all-linear"),
    expert_bias=lora("gpt_oss", "experts", target_modules=["q_proj"], target_parameters=["experts.down_proj_bias"]),
    # how it computes
    no_alpha=lora("llama", target_modules=ATTENTION, lora_alpha=8),
    fractional_alpha=lora("llama", target_modules=ATTENTION, lora_alpha=2.5),
    fan_in=lora("llama", target_modules=ATTENTION, fan_in_fan_out=True),
    dora_dropout=lora("qwen2", target_modules=SOME, use_dora=True, lora_dropout=0.1),
    dropout_router=lora("granitemoe", target_modules=["q_proj", "v_proj"], lora_dropout=0.1),
    dropout_head=lora("llama", target_modules=["q_proj", "lm_head"], lora_dropout=0.1),
    gaussian=lora("llama", target_modules=ATTENTION, init_lora_weights="gaussian"),
    orthogonal=lora("llama", target_modules=ATTENTION, init_lora_weights="orthogonal"),
    unready=lora("llama", target_modules=ATTENTION, init_lora_weights=False),
    mica=lora("llama", target_modules=ATTENTION, init_lora_weights="mica"),
    pissa=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="pissa"),
    pissa_fast=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="pissa_niter_2"),
    olora=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="olora"),
    eva=lora("llama", target_modules=ATTENTION, init_lora_weights="eva", eva_config=peft.EvaConfig(),
             rank_pattern={"layers.0.self_attn.q_proj": 3}, alpha_pattern={"layers.0.self_attn.q_proj": 4.5}),
    corda=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="corda", skip_init=True),
    loftq=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="loftq", skip_init=True),
    lora_ga=lora("llama", "init_lora_weights", target_modules=ATTENTION, init_lora_weights="lora_ga", skip_init=True),
    bias_all=lora("qwen2", "bias", target_modules=ATTENTION, bias="all"),
    bias_lora_only=lora("qwen2", "bias", target_modules=ATTENTION, bias="lora_only"),
    bias_of_none=lora("llama", "bias", target_modules=ATTENTION, bias="all"),
    lora_bias=lora("qwen2", "lora_bias", target_modules=ATTENTION, lora_bias=True),
    replicated=lora("llama", "layer_replication", target_modules=ATTENTION, layer_replication=[(0, 2), (1, 2)]),
    invoked=lora("llama", "alora_invocation_tokens", target_modules=ATTENTION, alora_invocation_tokens=[5, 9]),
    qalora=lora("llama", "use_qalora", target_modules=ATTENTION, use_qalora=True, qalora_group_size=4),
    arrow=lora("llama", "arrow_config", target_modules=ATTENTION, arrow_config="ArrowConfig", skip_init=True),
    megatron=lora("llama", "megatron_config", target_modules=ATTENTION, megatron_config={"use_cpu": True},
                  skip_init=True),
    kasa=lora("llama", "kasa_config", target_modules=ATTENTION, kasa_config="KasaConfig"),
    monteclora=lora("llama", "monteclora_config", target_modules=ATTENTION, monteclora_config="MontecloraConfig"),
    velora=lora("llama", "velora_config", target_modules=ATTENTION, velora_config="VeloraConfig"),
    block_diagonal=lora("llama", "use_bdlora", target_modules=["q_proj", "o_proj"], use_bdlora="BdLoraConfig"),
    **{"type_" + name: dict(model="llama", refused="peft_type", kind=name, options=options)
       for name, options in TYPES.items()})


def values(key, shape, centre, width):
    """Numbers between centre - width and centre + width that need no file: hashes of their places."""
    with numpy.errstate(over="ignore"):
        x = numpy.arange(1, int(numpy.prod(shape)) + 1, dtype=numpy.uint32) * numpy.uint32(2654435761)
        x ^= numpy.uint32(key + 1) * numpy.uint32(0x9E3779B9)
        x ^= x >> numpy.uint32(15)
        x *= numpy.uint32(0x85EBCA6B)
        x ^= x >> numpy.uint32(13)
    return torch.from_numpy((centre + width * (x / 2.0**31 - 1)).astype(numpy.float32).reshape(shape))


def log_probabilities(model):
    parts = []
    for ids in SEQUENCES:
        x = torch.tensor([ids])
        with torch.no_grad():
            logits = model(input_ids=x, use_cache=False).logits[0, :-1]
        parts.append(torch.log_softmax(logits.float(), -1).gather(1, x[0, 1:, None])[:, 0])
    return torch.cat(parts)


def option(value):
    if value == "BdLoraConfig":
        return peft.tuners.lora.BdLoraConfig(target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj"], nblocks=2)
    if isinstance(value, str) and value.endswith("Config"):
        return getattr(peft.tuners.lora.config, value)()
    return value


def load(base):
    return transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "models" / base, attn_implementation="eager", dtype=torch.float32).eval()


def make(name, model, refused, options, kind="Lora", directory=None):
    torch.manual_seed(1)
    # Kinds whose beginning needs data or other packages: their config on plain matrices.
    options = dict(options)
    skipped = {k: options.pop(k) for k in ("init_lora_weights", "arrow_config", "megatron_config")
               if k in options and options.get("skip_init")}
    options.pop("skip_init", None)
    config = getattr(peft, kind + "Config")(task_type="CAUSAL_LM", **{k: option(v) for k, v in options.items()})
    base = load(model)
    adapted = peft.get_peft_model(base, config)
    case = dict(model=model)
    with tempfile.TemporaryDirectory() as scratch:
        adapted.save_pretrained(scratch)
        file = scratch + "/adapter_model.safetensors"
        with safe_open(file, "pt") as tensors:
            shapes = {k: list(tensors.get_slice(k).get_shape()) for k in sorted(tensors.keys())}
            kept = {k: tensors.get_tensor(k) for k in shapes if k.endswith("base_layer.weight")}
        new = {k: kept[k] if k in kept else values(i, s, 1.0 if "magnitude" in k else 0.0, 0.3)
               for i, (k, s) in enumerate(shapes.items())}
        if options.get("ensure_weight_tying") and "base_model.model.lm_head.weight" in new and not refused:
            new["base_model.model.lm_head.weight"] = new["base_model.model.model.embed_tokens.weight"].clone()
        save_file(new, file)
        written = json.loads(Path(scratch, "adapter_config.json").read_text())
        written = {k: sorted(v) if isinstance(v, list) and k != "layer_replication" else v for k, v in written.items()}
        written["base_model_name_or_path"] = ""
        written |= {k: option(v).__dict__ if isinstance(v, str) and v.endswith("Config") else v for k, v in skipped.items()}
        case |= dict(config=written, tensors=shapes)
        if directory:
            target = Path(directory, name)
            target.mkdir(parents=True, exist_ok=True)
            save_file(new, target / "adapter_model.safetensors")
            (target / "adapter_config.json").write_text(json.dumps(written))
        if refused:
            return case | dict(refused=refused)
        read = peft.PeftModel.from_pretrained(load(model), scratch).eval()
        logp = log_probabilities(read)
        if (logp - log_probabilities(load(model))).abs().max() < 0.05:
            print("warning:", name, "hardly changes anything")
        case["logp"] = [float(f"{x:.8g}") for x in logp.tolist()]
    return case


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    directory = None
    names = sys.argv[1:]
    if names[:1] == ["--directories"]:
        directory, names = names[1], names[2:]
    out = HERE / "peft_variants.json"
    old = json.loads(out.read_text()) if names and out.exists() else dict(cases={})
    made = {k: dict(v, config=old["defaults"] | v["config"]) for k, v in old["cases"].items() if k in CASES}
    for name, case in CASES.items():
        if not names or name in names:
            try:
                made[name] = make(name, directory=directory, **case)
            except Exception as e:  # PEFT itself does not make such an adapter
                print("PEFT:", name, type(e).__name__, str(e)[:200])
                made.pop(name, None)
    defaults = json.loads(json.dumps(next(c["config"] for n, c in made.items() if CASES[n].get("kind", "Lora") == "Lora")))
    for case in made.values():
        absent = {k: None for k in defaults if k not in case["config"]}
        case["config"] = absent | {k: v for k, v in case["config"].items() if k not in defaults or defaults[k] != v}
    rows = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in made.items())
    out.write_text(f'{{\n  "sequences": {json.dumps(SEQUENCES)},\n  "defaults": {json.dumps(defaults)},\n  "cases": {{\n{rows}\n  }}\n}}\n')
    print(len(made), "cases,", out.stat().st_size, "bytes")
