#!/usr/bin/env python3
"""Makes tests/golden/aligned.json: distillation across tokenizers by TRL's GOLD trainer, in float64.

    python tests/golden/make_aligned_goldens.py       (torch 2.13, trl 1.16)

runs   ends of the tokens of two tokenizers in one text, and TRL's groups of them
spans  logits of student and teacher [tokens, vocabulary], the tokens that they predict, groups of both, pairs of tokens of one text;
       the sum over groups of TRL's hybrid loss (groups merged by its strategy "bayesian"), and its gradient in the student's logits
"""
import json
import random
from pathlib import Path

import torch
from trl.experimental.gold.gold_trainer import ULDLoss

HERE = Path(__file__).resolve().parent


def make_runs():
    draw = random.Random(3)
    runs = []
    for length in (1, 7, 20, 40):
        ends = [sorted(draw.sample(range(1, length), draw.randrange(length))) + [length] for _ in range(2)]
        offsets = [[[a, b] for a, b in zip([0] + e, e)] for e in ends]
        student, teacher = ULDLoss._align_by_byte_offsets(*offsets)
        runs.append(dict(student_ends=ends[0], teacher_ends=ends[1],
                         runs=[[s[0], s[-1] + 1, t[0], t[-1] + 1] for s, t in zip(student, teacher)]))
    return runs


def uld(beta, pairs):
    loss = ULDLoss.__new__(ULDLoss)
    torch.nn.Module.__init__(loss)
    loss.token_merge_strategy, loss.beta = "bayesian", beta
    loss.hybrid_matched_weight = loss.hybrid_unmatched_weight = None
    loss._vocab_mapping = {t: s for s, t in pairs}
    loss._teacher_matched_ids, loss._student_matched_ids = {t for _, t in pairs}, {s for s, _ in pairs}
    if pairs:
        loss.mapping_tensor = torch.full((max(loss._vocab_mapping) + 1,), -1, dtype=torch.long)
        for t, s in loss._vocab_mapping.items():
            loss.mapping_tensor[t] = s
    return loss


def make_span(kind, beta, temperature, student_size, teacher_size, pairs, scale):
    student_groups, teacher_groups = [[0], [1, 2], [3], [4, 5, 6]], [[0, 1], [2], [3], [4, 5]]
    s = (scale * torch.randn(7, student_size, dtype=torch.float64)).requires_grad_()
    t = scale * torch.randn(6, teacher_size, dtype=torch.float64)
    s_ids, t_ids = torch.randint(student_size, (7,)).tolist(), torch.randint(teacher_size, (6,)).tolist()
    loss = uld({"forward_kl": 0, "reverse_kl": 1}.get(kind, beta), pairs)
    merge = loss._merge_probabilities_with_alignment_groups
    p = merge((s / temperature).softmax(-1), student_groups, s_ids)
    q = merge((t / temperature).softmax(-1), teacher_groups, t_ids)
    value = loss._compute_hybrid_uld_loss(p, q) * len(student_groups)
    value.backward()
    return dict(kind=kind, beta=beta, temperature=temperature, student=s.tolist(), teacher=t.tolist(), student_ids=s_ids, teacher_ids=t_ids,
                student_groups=student_groups, teacher_groups=teacher_groups, pairs=pairs, value=value.item(), gradient=s.grad.tolist())


if __name__ == "__main__":
    torch.manual_seed(5)
    some = [[0, 3], [2, 0], [5, 1], [6, 8], [10, 4]]
    spans = [
        make_span("forward_kl", 0.5, 1.0, 11, 9, some, 1.0),
        make_span("reverse_kl", 0.5, 1.5, 11, 9, some, 2.0),
        make_span("jsd", 0.3, 0.8, 11, 9, some, 1.0),
        make_span("jsd", 0.5, 1.0, 11, 9, [], 1.0),  # ULD
        make_span("forward_kl", 0.5, 1.0, 8, 8, [[i, i] for i in range(8)], 1.0),  # nothing unmatched
        make_span("forward_kl", 0.5, 1.0, 5, 13, [[1, 1], [4, 12]], 12.0),  # probabilities below the least
    ]
    (HERE / "aligned.json").write_text(json.dumps(dict(runs=make_runs(), spans=spans)).replace('{"kind"', '\n{"kind"') + "\n")
