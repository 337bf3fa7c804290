#!/usr/bin/env python3
"""PPO with a critic, computed a second time: transformers' forward passes, torch's autograd and AdamW, and the papers' equations written
out per completion, in float64. Advantages are the plain double sum of GAE, not its recursion. Needs torch and transformers. Writes
tests/golden/ppo.json: rollouts, and for each set of keys the metrics of every update and the gradients of the first.
"""
import json
import math
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

HERE = pathlib.Path(__file__).resolve().parent
POLICY, CRITIC = HERE / "models/qwen3", HERE / "models/score"
ROWS, BATCH, TEMPERATURE, MAX_NEW_TOKENS = 13, 5, 0.8, 12  # three batches, the last one smaller
RATE, EPS, BETAS = 1e-2, 1e-8, (0.9, 0.999)
DEFAULTS = dict(beta=0.05, kl_estimator="k1", epsilon_low=0.2, epsilon_high=0.2, loss_aggregation="token-mean", minibatches=1, iterations=1)
PPO = dict(gamma=1.0, gae_lambda=0.95, value_clip=0.2, whiten_advantages=True, critic_warmup_steps=0, critic_learning_rate=None)


def rollouts(vocabulary):
    rng = random.Random(11)
    rows = []
    for group in range(ROWS):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 9))]
        tokens = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, MAX_NEW_TOKENS))]
        row = {"group": group, "prompt_tokens": prompt, "completion_tokens": tokens, "reward": rng.choice([0.0, 1.0, 0.25, -2.0]),
               "logprobs": [-rng.random() * 8 for _ in tokens]}
        if group % 4 == 3 and len(tokens) > 3:  # an observation in the middle
            row["completion_mask"] = [1, 0, 0] + [1] * (len(tokens) - 3)
        rows.append(row)
    return rows


def mask_of(row):
    return torch.tensor(row.get("completion_mask", [1] * len(row["completion_tokens"])), dtype=torch.bool)


def logp_and_entropy(model, row):
    prompt, tokens = row["prompt_tokens"], row["completion_tokens"]
    logits = model(torch.tensor([prompt + tokens])).logits[0] / TEMPERATURE
    logp = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)
    return logp.gather(1, torch.tensor(tokens)[:, None])[:, 0][mask_of(row)], -(logp.exp() * logp).sum(-1)[mask_of(row)]


def values(critic, row):
    prompt, tokens = row["prompt_tokens"], row["completion_tokens"]
    hidden = critic.model(torch.tensor([prompt + tokens])).last_hidden_state[0]
    return critic.score(hidden)[len(prompt) - 1 : -1, 0][mask_of(row)]


def kl_of(estimator, logp, ref):
    d = ref - logp
    return {"k1": -d, "k2": d**2 / 2, "k3": torch.exp(d) - d - 1}[estimator]


def advantages(rewards, value, gamma, lam):
    """A_t = sum over l of (gamma lambda)^l (r_{t+l} + gamma V_{t+l+1} - V_{t+l}), V = 0 after the end."""
    n = len(rewards)
    after = list(value[1:]) + [0.0]
    return torch.stack([sum((gamma * lam) ** l * (rewards[t + l] + gamma * after[t + l] - value[t + l]) for l in range(n - t)) for t in range(n)])


def prepare(rows, rl, ppo, policy, critic, reference):
    """What stays the same over a batch's updates; sampled tokens only."""
    with torch.no_grad():
        for row in rows:
            row["old"], row["V"] = logp_and_entropy(policy, row)[0], values(critic, row)
            row["kl"] = kl_of(rl["kl_estimator"], row["old"], logp_and_entropy(reference, row)[0]) if rl["beta"] > 0 else torch.zeros_like(row["old"])
            rewards = -rl["beta"] * row["kl"]
            rewards[-1] += row["reward"]
            row["A"] = advantages(rewards, row["V"], ppo["gamma"], ppo["gae_lambda"])
            row["ret"] = row["A"] + row["V"]
        if ppo["whiten_advantages"]:
            every = torch.cat([row["A"] for row in rows])
            for row in rows:
                row["A"] = (row["A"] - every.mean()) / torch.sqrt(every.var() + 1e-8)


def aggregate(how, losses):
    if how == "token-mean":
        return torch.cat(losses).mean()
    if how == "seq-mean-token-mean":
        return torch.stack([l.mean() for l in losses]).mean()
    return torch.stack([l.sum() for l in losses]).mean()


def fingerprint(model):
    """By parameter: the gradient's norm, and its product with a fixed vector."""
    out = {}
    for name, p in model.named_parameters():
        if p.grad is not None:
            g = p.grad.flatten()
            out[name] = [g.norm().item(), (g * torch.cos(torch.arange(g.numel(), dtype=torch.float64))).sum().item()]
    return out


def run(all_rows, rl, ppo, clip):
    policy, reference = (AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float64).eval() for _ in range(2))
    critic = AutoModelForSequenceClassification.from_pretrained(CRITIC, dtype=torch.float64).eval()
    adamw = lambda model, rate: torch.optim.AdamW(model.parameters(), lr=rate, betas=BETAS, eps=EPS, weight_decay=0.0)
    rate = RATE if ppo["critic_learning_rate"] is None else ppo["critic_learning_rate"]
    optimizers = adamw(policy, RATE), adamw(critic, rate)
    updates, gradients = [], None
    for first in range(0, ROWS, BATCH):
        rows = [dict(r) for r in all_rows[first : first + BATCH]]
        prepare(rows, rl, ppo, policy, critic, reference)
        parts = min(rl["minibatches"], len(rows))
        for part in list(range(parts)) * rl["iterations"]:
            chosen = rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]
            losses, clips, value_losses, value_clips, entropies = [], [], [], [], []
            for row in chosen:
                logp, entropy = logp_and_entropy(policy, row)
                ratio, low, high, a = torch.exp(logp - row["old"]), 1 - rl["epsilon_low"], 1 + rl["epsilon_high"], row["A"]
                loss = -torch.minimum(ratio * a, ratio.clamp(low, high) * a)
                if rl.get("dual_clip"):
                    loss = torch.where(a < 0, loss.clamp(max=-rl["dual_clip"] * a), loss)
                if rl.get("on_mismatch") == "correct":
                    loss = loss * torch.exp(row["old"] - torch.tensor(row["logprobs"], dtype=torch.float64)[mask_of(row)]).clamp(max=2.0)
                losses.append(loss - rl.get("entropy_bonus", 0) * entropy)
                clips.append((((ratio > high) & (a > 0)) | ((ratio < low) & (a < 0))).double())
                entropies.append(entropy)
                v, c = values(critic, row), ppo["value_clip"]
                plain = (v - row["ret"]) ** 2
                near = (torch.clamp(v, row["V"] - c, row["V"] + c) - row["ret"]) ** 2 if c > 0 else plain
                value_losses.append(torch.maximum(plain, near))
                value_clips.append((near > plain).double())
            loss = aggregate(rl["loss_aggregation"], losses)
            value_loss = 0.5 * torch.cat(value_losses).mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            (loss + value_loss).backward()
            if gradients is None:
                gradients = {"policy": fingerprint(policy), "critic": fingerprint(critic)}
            norms = [torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item() for model in (policy, critic)]
            if len(updates) >= ppo["critic_warmup_steps"]:
                optimizers[0].step()
            optimizers[1].step()
            ret, V = torch.cat([r["ret"] for r in chosen]), torch.cat([r["V"] for r in chosen])
            row = {"loss": loss.item(), "grad_norm": norms[0], "critic_grad_norm": norms[1], "value_loss": value_loss.item(),
                   "clip_fraction": torch.cat(clips).mean().item(), "value_clip_fraction": torch.cat(value_clips).mean().item(),
                   "entropy": torch.cat(entropies).mean().item(), "returns_mean": ret.mean().item()}
            if ret.numel() > 1 and ret.std() > 1e-6 * ret.abs().max():  # else the returns are one number
                row["explained_variance"] = (1 - (ret - V).var() / ret.var()).item()
            if rl["beta"] > 0:
                row["kl"] = torch.cat([r["kl"] for r in chosen]).mean().item()
            updates.append(row)
    return updates, gradients


CASES = [
    ({}, {}, 1.0),
    ({"minibatches": 2, "iterations": 2}, {}, 1.0),
    ({"beta": 0.5, "kl_estimator": "k3", "iterations": 2}, {"gamma": 0.9, "gae_lambda": 0.5, "value_clip": 0.02}, 1.0),
    ({"beta": 0.5, "kl_estimator": "k2", "iterations": 2, "loss_aggregation": "seq-mean-token-mean"}, {"whiten_advantages": False, "value_clip": 0.0}, 0.3),
    ({"beta": 0, "minibatches": 3, "entropy_bonus": 0.1, "dual_clip": 1.05, "iterations": 2}, {"gae_lambda": 1.0, "critic_learning_rate": 3e-3}, 1.0),
    ({"on_mismatch": "correct", "iterations": 2}, {"critic_warmup_steps": 3, "gae_lambda": 0.0}, 1.0),
]

if __name__ == "__main__":
    rows = rollouts(json.loads((POLICY / "config.json").read_text())["vocab_size"])
    cases = []
    for rl, ppo, clip in CASES:
        updates, gradients = run(rows, DEFAULTS | rl, PPO | ppo, clip)
        cases.append({"rl": rl, "ppo": ppo, "max_grad_norm": clip, "updates": updates, "gradients": gradients})
        print(rl, ppo, [round(u["value_loss"], 5) for u in updates], [u["value_clip_fraction"] for u in updates])
        assert all(math.isfinite(x) for u in updates for x in u.values())
    settings = {"prompts_per_rollout": BATCH, "temperature": TEMPERATURE, "max_new_tokens": MAX_NEW_TOKENS, "learning_rate": RATE}
    (HERE / "ppo.json").write_text(json.dumps({"settings": settings, "rollouts": rows, "cases": cases}, indent=1) + "\n")
