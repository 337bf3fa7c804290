#!/usr/bin/env python3
"""Updates of the GRPO family, computed a second time: transformers' forward pass, torch's autograd and AdamW, and the papers'
equations written out per completion, in float64. Needs torch and transformers. Writes tests/golden/rl.json: rollouts, and for each
set of keys the metrics of every update. Rewards that are normalized one by one are aggregated by TRL's own lines (gdpo). Needs trl, too.
"""
import inspect
import json
import pathlib
import random
import textwrap
from types import SimpleNamespace

import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "models/qwen3"
GROUPS, SAMPLES, TEMPERATURE, MAX_NEW_TOKENS = 4, 3, 0.8, 11
RATE, EPS, BETAS, CLIP = 3e-2, 1e-8, (0.9, 0.999), 1.0


def rollouts(vocabulary):
    rng = random.Random(5)
    rows = []
    for group in range(GROUPS):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 9))]
        for sample in range(SAMPLES):
            tokens = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, MAX_NEW_TOKENS))]
            reward = 0.5 if group == 2 else rng.choice([0.0, 1.0, 0.25])  # one group without signal
            rows.append({"group": group, "sample": sample, "prompt_tokens": prompt, "completion_tokens": tokens, "reward": reward,
                         "logprobs": [-rng.random() * 8 for _ in tokens]})
    parts = random.Random(20)
    for row in rows:  # two rewards with this sum
        part = parts.choice([0.0, 0.25, 0.5])
        row["rewards"] = {"a": part, "b": row["reward"] - part}
    ends = random.Random(8)
    for row in rows:
        row["finish_reason"] = ends.choice(["stop", "stop", "length"])
    return rows


def normalize_then_sum(rewards, weights, num_generations):
    """TRL's lines, with the constant that Temper adds to deviations. rewards [completions, rewards], NaN where there is none."""
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    lines = source.split('elif self.multi_objective_aggregation == "normalize_then_sum":\n')[1].split("        else:\n")[0]

    class Trainer:
        reward_funcs, reward_weights = list(weights), torch.tensor(weights, dtype=torch.float64)

    names = {"torch": torch, "nanstd": nanstd, "self": Trainer, "device": "cpu", "num_generations": num_generations,
             "rewards_per_func": torch.tensor(rewards, dtype=torch.float64)}
    names["unscorable_mask"] = torch.isnan(names["rewards_per_func"]).all(dim=1)
    assert lines.count("1e-4") == 2
    exec(textwrap.dedent(lines.replace("1e-4", "1e-6")), names)
    return torch.nan_to_num(names["advantages"], nan=0.0).tolist()


def aggregations():
    """Rewards by name of groups of completions, null where a completion has none, with their weights and advantages."""
    rng = random.Random(7)
    out = []
    for weights, groups, samples in (((1.0, 1.0), 3, 4), ((1.0, 2.5, -0.5), 4, 3), ((0.0, 1.0), 2, 5), ((3.0,), 2, 2)):
        rewards = [[rng.choice([0.0, 1.0, 0.5, -2.0]) for _ in weights] for _ in range(groups * samples)]
        for row in rewards[:samples]:
            row[0] = 0.1  # a reward without signal in the first group
        if len(weights) > 1:
            rewards[-1][0] = rewards[-2][0] = rewards[1][1] = float("nan")
        out.append({"weights": weights, "group_size": samples, "advantages": normalize_then_sum(rewards, weights, samples),
                    "rewards": [[None if r != r else r for r in row] for row in rewards]})
    return out


def logp_and_entropy(model, row):
    prompt, tokens = row["prompt_tokens"], row["completion_tokens"]
    logits = model(torch.tensor([prompt + tokens])).logits[0] / TEMPERATURE
    logp = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)
    return logp.gather(1, torch.tensor(tokens)[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def advantages(rows, rl):
    for group in range(GROUPS):
        mine = [r for r in rows if r["group"] == group]
        rewards = torch.tensor([r["reward"] for r in mine], dtype=torch.float64)
        for i, row in enumerate(mine):
            if rl["algorithm"] == "rloo":
                row["advantage"] = (rewards[i] - (rewards.sum() - rewards[i]) / (len(mine) - 1)).item()
            else:
                centred = rewards[i] - rewards.mean()
                row["advantage"] = (centred / (rewards.std() + 1e-6) if rl["scale_rewards"] else centred).item()
    if rl.get("reward_aggregation") == "normalize_then_sum":
        for row, a in zip(rows, normalize_then_sum([list(r["rewards"].values()) for r in rows], (1.0, 1.0), SAMPLES)):
            row["advantage"] = a if abs(a) > 1e-9 else 0.0  # where rewards cancel
    if rl["algorithm"] == "reinforce_plus_plus":  # at the start the policy is the reference: no KL
        tokens = torch.cat([torch.full((len(r["completion_tokens"]),), float(r["reward"]), dtype=torch.float64) for r in rows])
        for row in rows:
            row["advantage"] = ((row["reward"] - tokens.mean()) / (tokens.var() + 1e-8).sqrt()).item()


def high_entropy(entropies, fraction):
    """TRL's mask of an update's tokens, by completion."""
    longest = max(len(e) for e in entropies)
    padded = torch.stack([torch.nn.functional.pad(e.detach().float(), (0, longest - len(e))) for e in entropies])
    mask = torch.stack([torch.arange(longest) < len(e) for e in entropies])
    alone = SimpleNamespace(pad_across_processes=lambda x, **_: x, gather=lambda x: x)
    chosen = GRPOTrainer.get_high_entropy_mask(SimpleNamespace(accelerator=alone), padded, mask, 1 - fraction)
    return [chosen[i, : len(e)].double() for i, e in enumerate(entropies)]


def token_losses(row, rl, logp, old, ref, entropy, top):
    """Loss of each token of a completion, its KL, and which tokens are clipped. top: 1 for tokens with a policy loss; None: all."""
    a = row["advantage"]
    if rl["importance"] == "sequence":
        ratio = torch.exp((logp - old).mean().detach()) * torch.exp(logp - logp.detach())
    else:
        ratio = torch.exp(logp - old)
    low, high = 1 - rl["epsilon_low"], 1 + rl["epsilon_high"]
    if rl["algorithm"] == "rloo":
        loss, clipped = -ratio * a, torch.zeros_like(logp)
    elif rl["algorithm"] == "dro":
        loss, clipped = -(a * logp - rl["dro_beta"] / 2 * (logp - old) ** 2), torch.zeros_like(logp)
    elif rl["algorithm"] == "cispo":
        loss = -ratio.clamp(low, high).detach() * a * logp
        clipped = (((ratio > high) & (a > 0)) | ((ratio < low) & (a < 0))).double()
    else:
        loss = -torch.minimum(ratio * a, ratio.clamp(low, high) * a)
        if rl.get("dual_clip") and a < 0:
            loss = loss.clamp(max=-rl["dual_clip"] * a)
        clipped = (((ratio > high) & (a > 0)) | ((ratio < low) & (a < 0))).double()
    if rl["algorithm"] == "sapo":  # TRL's lines
        tau = rl["sapo_temperature_pos"] if a > 0 else rl["sapo_temperature_neg"]
        loss, clipped = -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * a, torch.zeros_like(logp)
    elif rl["algorithm"] == "gmpo":  # one number a completion, of which each token has its share
        log_ratio, low, high = logp - old, -rl["epsilon_low"], rl["epsilon_high"]
        clamped = log_ratio.clamp(low, high)
        one_sided = torch.minimum(log_ratio, clamped) if a > 0 else torch.maximum(log_ratio, clamped)
        loss = (-torch.exp(one_sided.mean()) * a).expand_as(logp)
        clipped = (((log_ratio < low) & (a < 0)) | ((log_ratio > high) & (a > 0))).double()
    if top is not None:
        assert rl["algorithm"] != "gmpo"
        loss = loss * top
    if rl.get("on_mismatch") == "correct":
        difference, how = old - torch.tensor(row["logprobs"], dtype=torch.float64), rl.get("importance_correction", "truncate")
        weight, cap = torch.exp(difference.sum() if how.startswith("sequence") else difference), rl.get("importance_cap", 2.0)
        loss = loss * (torch.where(weight > cap, 0.0, weight) if how == "sequence_mask" else weight.clamp(max=cap))
    kl = None
    if rl["algorithm"] == "reinforce_plus_plus":
        kl = torch.zeros_like(logp)  # that of the rewards
    elif rl["beta"] > 0:
        kl = {"k1": logp - ref, "k2": (logp - ref) ** 2 / 2, "k3": torch.exp(ref - logp) - (ref - logp) - 1}[rl.get("kl_estimator", "k3")]
        loss = loss + rl["beta"] * kl
    loss = loss - rl.get("entropy_bonus", 0) * entropy
    return loss, kl, clipped


def aggregate(how, losses):
    if how == "token-mean":
        return torch.cat(losses).mean()
    if how == "seq-mean-token-mean":
        return torch.stack([l.mean() for l in losses]).mean()
    sums = torch.stack([l.sum() for l in losses]).mean()
    return sums if how == "seq-mean-token-sum" else sums / MAX_NEW_TOKENS


def run(rows, rl):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=0.0)
    advantages(rows, rl)
    with torch.no_grad():
        old = [logp_and_entropy(model, r)[0] for r in rows]  # the reference too: the policy as the run starts it
    updates = []
    for _ in range(rl.get("iterations", 1)):
        parts = rl.get("minibatches", 1)
        for part in range(parts):
            chosen = range(part * len(rows) // parts, (part + 1) * len(rows) // parts)
            if rl.get("mask_truncated"):
                chosen = [i for i in chosen if rows[i]["finish_reason"] != "length"]
            losses, kls, clips, entropies = [], [], [], []
            found = [logp_and_entropy(model, rows[i]) for i in chosen]
            tops = [None] * len(found)
            if rl.get("top_entropy_fraction", 1.0) < 1:
                tops = high_entropy([entropy for _, entropy in found], rl["top_entropy_fraction"])
            for i, (logp, entropy), top in zip(chosen, found, tops):
                loss, kl, clipped = token_losses(rows[i], rl, logp, old[i], old[i], entropy, top)
                losses.append(loss)
                clips.append(clipped)
                entropies.append(entropy)
                if kl is not None:
                    kls.append(kl)
            total = aggregate(rl["loss_aggregation"], losses)
            optimizer.zero_grad()
            total.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            row = {"loss": total.item(), "grad_norm": norm.item(), "entropy": torch.cat(entropies).mean().item(),
                   "clip_fraction": torch.cat(clips).mean().item()}
            if kls:
                row["kl"] = torch.cat(kls).mean().item()
            updates.append(row)
    return updates


DEFAULTS = {
    "grpo": dict(beta=0.04, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="seq-mean-token-mean", scale_rewards=True,
                 kl_estimator="k3"),
    "dr_grpo": dict(beta=0, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="seq-mean-token-sum-norm", scale_rewards=False),
    "dapo": dict(beta=0, epsilon_low=0.2, epsilon_high=0.28, importance="token", loss_aggregation="token-mean", scale_rewards=True),
    "gspo": dict(beta=0, epsilon_low=3e-4, epsilon_high=4e-4, importance="sequence", loss_aggregation="seq-mean-token-mean", scale_rewards=True),
    "cispo": dict(beta=0, epsilon_low=1, epsilon_high=4, importance="token", loss_aggregation="token-mean", scale_rewards=True),
    "gdpo": dict(beta=0, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="seq-mean-token-mean", scale_rewards=True,
                 reward_aggregation="normalize_then_sum"),
    "dro": dict(beta=0, dro_beta=0.05, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="seq-mean-token-mean",
                scale_rewards=False),
    "reinforce_plus_plus": dict(beta=0.01, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="token-mean",
                                scale_rewards=True),
    "sapo": dict(beta=0, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, epsilon_low=0.2, epsilon_high=0.2, importance="token",
                 loss_aggregation="seq-mean-token-mean", scale_rewards=True),
    "gmpo": dict(beta=0, epsilon_low=0.4, epsilon_high=0.4, importance="token", loss_aggregation="seq-mean-token-mean", scale_rewards=True),
    "rloo": dict(beta=0, epsilon_low=0.2, epsilon_high=0.2, importance="token", loss_aggregation="seq-mean-token-mean", scale_rewards=True),
}
CASES = [
    {"algorithm": "grpo"},
    {"algorithm": "grpo", "minibatches": 2, "iterations": 2},
    {"algorithm": "grpo", "beta": 0.5, "kl_estimator": "k1", "iterations": 3, "loss_aggregation": "seq-mean-token-sum"},
    {"algorithm": "grpo", "beta": 0.5, "kl_estimator": "k2", "iterations": 3, "scale_rewards": False},
    {"algorithm": "grpo", "entropy_bonus": 0.1, "dual_clip": 1.05, "iterations": 3},
    {"algorithm": "grpo", "on_mismatch": "correct", "iterations": 2},
    {"algorithm": "dr_grpo", "minibatches": 3, "iterations": 2},
    {"algorithm": "dapo", "minibatches": 2, "iterations": 2},
    {"algorithm": "gspo", "minibatches": 2, "iterations": 2},
    {"algorithm": "rloo", "minibatches": 2, "iterations": 2},
    {"algorithm": "cispo", "minibatches": 2, "iterations": 2},
    {"algorithm": "cispo", "epsilon_low": 0.1, "epsilon_high": 0.2, "iterations": 3},
    {"algorithm": "reinforce_plus_plus", "minibatches": 2, "iterations": 2},
    {"algorithm": "gdpo", "minibatches": 2, "iterations": 2},
    {"algorithm": "cispo", "reward_aggregation": "normalize_then_sum", "iterations": 2},
    {"algorithm": "dro", "minibatches": 2},
    {"algorithm": "dro", "dro_beta": 2.0, "iterations": 3, "loss_aggregation": "token-mean"},
    {"algorithm": "grpo", "mask_truncated": True, "minibatches": 2, "iterations": 2},
    {"algorithm": "dapo", "mask_truncated": True, "top_entropy_fraction": 0.7, "iterations": 2},
    {"algorithm": "grpo", "on_mismatch": "correct", "importance_correction": "sequence_truncate", "importance_cap": 0.5, "iterations": 2},
    {"algorithm": "grpo", "on_mismatch": "correct", "importance_correction": "sequence_mask", "importance_cap": 0.5, "iterations": 2},
    {"algorithm": "grpo", "top_entropy_fraction": 0.3, "beta": 0.5, "iterations": 2},
    {"algorithm": "sapo", "minibatches": 2, "iterations": 2},
    {"algorithm": "sapo", "sapo_temperature_pos": 3.0, "sapo_temperature_neg": 0.5, "beta": 0.5, "iterations": 3},
    {"algorithm": "gmpo", "minibatches": 2, "iterations": 2},
    {"algorithm": "gmpo", "epsilon_low": 0.05, "epsilon_high": 0.1, "beta": 0.5, "iterations": 3},
]

rows = rollouts(json.loads((MODEL / "config.json").read_text())["vocab_size"])
written = [dict(r) for r in rows]
cases = [{"keys": case, "updates": run(rows, DEFAULTS[case["algorithm"]] | case)} for case in CASES]
settings = {"group_size": SAMPLES, "prompts_per_rollout": GROUPS, "temperature": TEMPERATURE, "max_new_tokens": MAX_NEW_TOKENS, "learning_rate": RATE}
text = json.dumps({"settings": settings, "rollouts": written, "cases": cases, "aggregations": aggregations()}, indent=1)
(HERE / "rl.json").write_text(text + "\n")
for case in cases:
    print(case["keys"], [round(u["loss"], 6) for u in case["updates"]], [u["clip_fraction"] for u in case["updates"]])
