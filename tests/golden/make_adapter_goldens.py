#!/usr/bin/env python3
"""Makes tests/golden/adapters: PEFT's adapters of other kinds than plain LoRA, and what PEFT computes with them.

    python tests/golden/make_adapter_goldens.py [NAME...]      (torch 2.13, transformers 5.23, peft 0.21)

Every directory is an adapter that PEFT saved, of a model in tests/golden/models, with expected.safetensors and
expected.json:
  model, sequences      the base model's directory; token ids
  logp                  log p of every token after a sequence's first, the sequences one after another
  grad.NAME             gradients of the mean over all those tokens of -logp
  merged.NAME           weights after merge_and_unload that are not the base model's; not of a head that is tied to
                        the embeddings, whose merging changes the embeddings as well (PEFT warns of it)
  losses, norms         of five steps on that mean: torch.optim.AdamW with weight decay on matrices only, after
                        clip_grad_norm_(1.0); the norms are those before clipping
  final_logp            logp after the five steps
Everything is computed in float32 with eager attention, one sequence at a time.
"""
import json
import shutil
import sys
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
LENGTHS = (21, 4, 13)
ADAMW = dict(lr=3e-3, betas=(0.9, 0.98), eps=1e-8)
WEIGHT_DECAY = 0.1
SOME = ["q_proj", "v_proj", "down_proj"]
CASES = dict(
    dora=("llama", dict(r=4, lora_alpha=8, target_modules=SOME, use_dora=True)),
    dora_rslora=("qwen2", dict(r=3, lora_alpha=2, target_modules="all-linear", use_dora=True, use_rslora=True)),
    rslora=("qwen3", dict(r=4, lora_alpha=3, target_modules=SOME, use_rslora=True)),
    saved=("llama", dict(r=2, lora_alpha=4, target_modules=SOME, modules_to_save=["embed_tokens", "lm_head"])),
    saved_head=("qwen3", dict(r=2, lora_alpha=4, target_modules=SOME, modules_to_save=["lm_head"])),
    saved_tied=("llama_linear", dict(r=2, lora_alpha=4, target_modules=SOME, use_dora=True,
                                     modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    mixture=("qwen3_moe", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    mixture_rslora=("mixtral", dict(r=2, lora_alpha=3, target_modules="all-linear", use_rslora=True)),
    head=("qwen3", dict(r=4, lora_alpha=8, target_modules=SOME + ["lm_head"])),
    head_tied=("llama_linear", dict(r=4, lora_alpha=8, target_modules=SOME + ["lm_head"])),
    head_capped=("gemma2", dict(r=3, lora_alpha=4, target_modules=SOME + ["lm_head"])),
    head_scaled=("granite", dict(r=3, lora_alpha=4, target_modules=["lm_head"], use_rslora=True)),
    tokens=("llama", dict(r=2, lora_alpha=4, target_modules=SOME, trainable_token_indices=[3, 17, 40])),
    tokens_head=("qwen3", dict(r=2, lora_alpha=4, target_modules=SOME,
                               trainable_token_indices={"embed_tokens": [5, 60], "lm_head": [2, 9, 60]})),
    tokens_tied=("llama_linear", dict(r=2, lora_alpha=4, target_modules=SOME, use_dora=True,
                                      trainable_token_indices={"embed_tokens": [3, 17, 40], "lm_head": [3, 17, 40]})),
)


def log_probabilities(model, sequences):
    parts = []
    for ids in sequences:
        x = torch.tensor([ids])
        logits = model(input_ids=x, use_cache=False).logits[0, :-1]
        parts.append(torch.log_softmax(logits.float(), -1).gather(1, x[0, 1:, None])[:, 0])
    return torch.cat(parts)


def plain(name):
    """A parameter's name without what PEFT wraps around it."""
    for part in ("base_model.model.", ".default", ".modules_to_save"):
        name = name.replace(part, "")
    return name


def by_expert(config, named):
    """What is stacked over experts by each expert's name: weights, and PEFT's pairs of matrices, of which gate_up_proj's
    are the inner ones."""
    for name, value in named.items():
        module, _, rest = name.partition(".experts.")
        if not rest:
            yield name, value
            continue
        if "lora_" in rest:
            layer = "gate_up_proj" if rest.startswith("base_layer.") else "down_proj"
            rest = layer + "." + rest.removeprefix("base_layer.")
            experts = config.num_local_experts
            parts = (value.view(experts, -1, value.shape[1]) if "lora_A" in rest else
                     value.view(value.shape[0], -1, experts).permute(2, 0, 1))
        else:
            rest, parts = rest + ".weight", value
        for i, part in enumerate(parts):
            yield f"{module}.experts.{i}.{rest}", part


def make(seed, name, base, options):
    torch.manual_seed(seed)
    directory = HERE / "adapters" / name
    shutil.rmtree(directory, ignore_errors=True)
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "models" / base, attn_implementation="eager", dtype=torch.float32).eval()
    adapted = peft.get_peft_model(load(), peft.LoraConfig(task_type="CAUSAL_LM", **options))
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for n, p in trained.items():
            if "magnitude" in n:
                p.mul_(1 + 0.2 * torch.randn_like(p))
            else:
                p.add_((0.3 if "lora_" in n else 0.1) * torch.randn_like(p))
    adapted.save_pretrained(directory)
    file = directory / "adapter_config.json"
    config = {k: sorted(v) if isinstance(v, list) else v for k, v in json.loads(file.read_text()).items()}
    file.write_text(json.dumps(config | {"base_model_name_or_path": ""}, indent=2, sort_keys=True) + "\n")
    (directory / "README.md").unlink(missing_ok=True)

    sequences = [torch.randint(0, 61, (n,)).tolist() for n in LENGTHS]
    loss = -log_probabilities(adapted, sequences).mean()
    tensors = {"logp": log_probabilities(adapted, sequences).detach()}
    loss.backward()
    config = adapted.config
    tensors |= {"grad." + n: g.clone() for n, g in by_expert(config, {plain(n): p.grad for n, p in trained.items()})}
    base_model = load()
    before = dict(base_model.named_parameters())
    tied_head = base_model.config.tie_word_embeddings and "lm_head" in options["target_modules"]
    merged = peft.PeftModel.from_pretrained(load(), directory).merge_and_unload()
    changed = {n: p.detach() for n, p in merged.named_parameters()
               if not torch.equal(p, before[n]) and not (tied_head and "embed_tokens" in n)}
    tensors |= {"merged." + n: p.clone() for n, p in by_expert(config, changed)}
    decay = [p for p in trained.values() if p.ndim >= 2]
    rest = [p for p in trained.values() if p.ndim < 2]
    optimizer = torch.optim.AdamW([dict(params=decay, weight_decay=WEIGHT_DECAY), dict(params=rest, weight_decay=0.0)],
                                  **ADAMW)
    losses, norms = [], []
    for _ in range(5):
        optimizer.zero_grad()
        loss = -log_probabilities(adapted, sequences).mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    tensors["final_logp"] = log_probabilities(adapted, sequences).detach()
    save_file({k: v.contiguous() for k, v in tensors.items()}, directory / "expected.safetensors")
    expected = dict(model=base, sequences=sequences, weight_decay=WEIGHT_DECAY, **ADAMW, losses=losses, norms=norms)
    (directory / "expected.json").write_text(json.dumps(expected) + "\n")
    for file in directory.rglob("*.*"):
        file.chmod(0o644)
    print(name, sorted(tensors)[:4], losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for seed, (name, (base, options)) in enumerate(CASES.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(500 + seed, name, base, options)
