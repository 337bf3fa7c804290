#!/usr/bin/env python3
"""Makes tests/golden/distill.json: losses of distillation between models of tests/golden/models, by torch and transformers.

    python tests/golden/make_distill_goldens.py       (torch 2.13, transformers 5.23, trl 1.16)

rows   supervised rows of ids, all in one step
cases  student, teacher and keys of `distill`; loss, distill_loss, task_loss; grad_norm over the student's parameters (tied
       ones once); `tensor` and its values after one step of SGD at RATE; of learned maps their weights before (`maps`, one
       a pair) and after (`maps_after`), and their own grad_norm
Everything is computed in float32 with eager attention, one row at a time, from the formulas as they are written: whole
logits, whole attention maps, hooks on the blocks' outputs.
"""
import json
import random
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from trl.experimental.gkd import GKDTrainer

HERE = Path(__file__).resolve().parent
RATE = 0.5
LAYER_NORM = "model.layers.0.input_layernorm.weight"

CASES = [
    dict(student="gemma2", teacher="qwen3"),
    dict(student="qwen3", teacher="gemma2", divergence="reverse_kl", temperature=2.0, alpha=0.3),
    dict(student="gemma2", teacher="llama", divergence="jsd", jsd_beta=0.3, temperature=1.5, alpha=1.0),
    dict(student="qwen2", teacher="qwen3", temperature=2.0, top_k=5),
    dict(student="llama_linear", teacher="gemma2", divergence="jsd", top_k=7, alpha=0.7),
    dict(student="gemma2", teacher="qwen3", strategy="attention_transfer"),
    dict(student="gemma3_text", teacher="qwen3", strategy="attention_transfer", layers=[[6, 1], [2, 0]], alpha=0.9),
    dict(student="gemma2", teacher="qwen2", strategy="feature_pooling"),
    dict(student="gemma3_text", teacher="qwen2", strategy="feature_pooling", layers="last"),
    dict(student="qwen2", teacher="gemma", strategy="attention_projection"),
    dict(student="gemma3_text", teacher="qwen2", strategy="feature_projection", layers=[[3, 0], [6, 1]]),
    dict(student="gemma2", teacher="qwen3", divergence="jsd", jsd_beta=0.1, alpha=1.0),
]


def load(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / name, dtype=torch.float32,
                                                              attn_implementation="eager")
    model.eval()
    model.outputs = {}
    for i, layer in enumerate(model.model.layers):
        def keep(_, __, out, i=i):
            model.outputs[i] = (out[0] if isinstance(out, tuple) else out)[0]
        layer.register_forward_hook(keep)
    return model


def forward(model, ids):
    """Logits [n, V], blocks' outputs [n, H] and attention maps [heads, n, n] by layer."""
    model.outputs.clear()
    out = model(input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True)
    return out.logits[0], dict(model.outputs), [a[0] for a in out.attentions]


def pairs_of(case, students, teachers):
    layers = case.get("layers", "uniform")
    if layers == "last":
        return [(students - 1, teachers - 1)]
    if layers == "uniform":
        return [(i, int((i + 1) * teachers / students + 0.5) - 1) for i in range(students)]
    return [tuple(pair) for pair in layers]


def kl(a, b):
    return (a.exp() * (a - b)).sum(-1)


def divergence(case, student, teacher):
    temperature, b = case.get("temperature", 1.0), case.get("jsd_beta", 0.5)
    s, t = student / temperature, teacher / temperature
    if case.get("top_k", 0):
        likeliest = t.topk(case["top_k"], -1).indices
        s, t = s.gather(-1, likeliest), t.gather(-1, likeliest)
    p, q = s.log_softmax(-1), t.log_softmax(-1)
    kind = case.get("divergence", "forward_kl")
    if kind == "forward_kl":
        value = kl(q, p)
    elif kind == "reverse_kl":
        value = kl(p, q)
    else:
        m = (b * q.exp() + (1 - b) * p.exp()).log()
        value = b * kl(q, m) + (1 - b) * kl(p, m)
    if not case.get("top_k", 0):  # as TRL computes it
        beta = {"forward_kl": 0, "reverse_kl": 1}.get(kind, b)
        theirs = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, temperature=temperature, reduction="none").sum(-1)
        assert torch.allclose(value, theirs, rtol=1e-4, atol=1e-6), (case, value, theirs)
    return temperature**2 * value


def pool(x, out):
    stride = x.shape[-1] // out
    return x.unfold(-1, x.shape[-1] - (out - 1) * stride, stride).mean(-1)


def strategy_loss(case, pairs, maps, s, t, targets):
    """Sum and count of a row."""
    (s_logits, s_out, s_maps), (t_logits, t_out, t_maps) = s, t
    strategy, n = case.get("strategy", "logit"), len(s_logits)
    if strategy == "logit":
        at = torch.tensor([i - 1 for i, _ in targets])
        return divergence(case, s_logits[at], t_logits[at]).sum(), len(targets)
    total = 0
    for i, (a, b) in enumerate(pairs):
        if strategy == "attention_transfer":
            heads = s_maps[a].shape[0]
            mean = t_maps[b].view(heads, -1, n, n).mean(1)
            total = total + (1 - F.cosine_similarity(s_maps[a], mean, -1)).mean(0).sum() / len(pairs)
        elif strategy == "attention_projection":
            error = torch.einsum("ts,sij->tij", maps[i], s_maps[a]) - t_maps[b]
            total = total + error.tril().square().mean(0).sum() / len(pairs)
        elif strategy == "feature_pooling":
            total = total + (1 - F.cosine_similarity(s_out[a], pool(t_out[b], s_out[a].shape[-1]), -1)).sum() / len(pairs)
        else:
            total = total + (s_out[a] @ maps[i].T - t_out[b]).square().mean(-1).sum() / len(pairs)
    return total, n * (n + 1) // 2 if strategy == "attention_projection" else n


def run(case, rows):
    student, teacher = load(case["student"]), load(case["teacher"])
    pairs = pairs_of(case, len(student.model.layers), len(teacher.model.layers))
    strategy, maps = case.get("strategy", "logit"), []
    if strategy.endswith("projection"):
        size = ((teacher.config.num_attention_heads, student.config.num_attention_heads)
                if strategy == "attention_projection" else (teacher.config.hidden_size, student.config.hidden_size))
        maps = [(torch.randn(size) / size[1]**0.5).requires_grad_() for _ in pairs]
    distill = task = 0
    distill_count = task_count = 0
    for row in rows:
        targets = [(i, label) for i, label in enumerate(row["labels"]) if i > 0 and label >= 0]
        s = forward(student, row["input_ids"])
        with torch.no_grad():
            t = forward(teacher, row["input_ids"])
        if targets or strategy != "logit":
            value, count = strategy_loss(case, pairs, maps, s, t, targets)
            distill, distill_count = distill + value, distill_count + count
        for i, label in targets:
            task, task_count = task - s[0][i - 1].log_softmax(-1)[label], task_count + 1
    distill, task = distill / distill_count, task / task_count
    alpha = case.get("alpha", 0.5)
    loss = alpha * distill + (1 - alpha) * task
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in student.parameters() if p.grad is not None]).norm()
    found = dict(loss=loss.item(), distill_loss=distill.item(), task_loss=task.item(), grad_norm=norm.item(),
                 tensor=LAYER_NORM)
    with torch.no_grad():
        p = dict(student.named_parameters())[LAYER_NORM]
        found["values"] = (p - RATE * p.grad).tolist()
        if maps:
            found["maps"] = [m.flatten().tolist() for m in maps]
            found["maps_grad_norm"] = torch.stack([m.grad.norm() for m in maps]).norm().item()
            found["maps_after"] = [(m - RATE * m.grad).flatten().tolist() for m in maps]
    return dict(keys=case, **found)


def make_rows():
    draw = random.Random(5)
    rows = []
    for length, supervised in ((19, 12), (1, 0), (7, 7), (26, 3), (5, 0), (2, 1)):
        ids = [draw.randrange(61) for _ in range(length)]
        rows.append(dict(input_ids=ids, labels=[-100] * (length - supervised) + ids[length - supervised:]))
    return rows


def rounded(x):
    if isinstance(x, float):
        return float(f"{x:.8g}")
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return {k: rounded(v) for k, v in x.items()} if isinstance(x, dict) else x


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    rows = make_rows()
    text = json.dumps(dict(rate=RATE, rows=rows, cases=rounded([run(case, rows) for case in CASES])))
    (HERE / "distill.json").write_text(text.replace('{"keys"', '\n{"keys"') + "\n")
