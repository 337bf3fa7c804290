#!/usr/bin/env python3
"""Ten updates of each loss over preferences, made by TRL: DPOTrainer, KTOTrainer, RewardTrainer and the experimental CPOTrainer
(simpo, and cDPO without a reference: DPOTrainer's sigmoid has no label smoothing). ORPO is the paper's equation 6 written out, as
TRL averages the likelihood over a batch's tokens and not over pairs. Needs torch, transformers and trl. Writes
tests/golden/preference.json: the pairs, and for each run its keys and every step's loss, gradient norm and rewards. The rows of kto_single are the sides of the pairs one by one.

Words of the tokenizer are the ids of the tiny models ("<7>"), so that TRL's text rows are rows of ids.
"""
import json
import pathlib
import random
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer

HERE = pathlib.Path(__file__).resolve().parent
POLICY, SCORE = HERE / "models/qwen3", HERE / "models/score"
STEPS, BATCH, RATE, EOS, PAD = 10, 4, 3e-3, 2, 0


def pairs():
    rng = random.Random(11)
    word = lambda: rng.randrange(3, 61)
    rows = []
    for i in range(STEPS * BATCH // 2):  # gone through twice
        prompt = [word() for _ in range(rng.randrange(2, 7))]
        shared = [word() for _ in range(rng.randrange(0, 4))] if i % 3 == 0 else []
        chosen, rejected = ([word() for _ in range(rng.randrange(1, 8))] for _ in range(2))
        rejected[0] = 3 + (chosen[0] + 1) % 58
        rows.append({"prompt_ids": prompt, "chosen_ids": shared + chosen + [EOS], "rejected_ids": shared + rejected + [EOS]})
    return rows


def tokenizer():
    vocabulary = {f"<{i}>": i for i in range(61)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<1>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<2>", pad_token="<0>", unk_token="<1>")


def text(ids):
    return " ".join(f"<{i}>" for i in ids if i != EOS)


def recorded(base):
    """The trainer with rows in order, which keeps every step's loss and metrics as they are computed."""

    class Recorded(base):
        def _get_train_sampler(self, *_, **__):
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, model, inputs, *args, **kwargs):
            self.kept = getattr(self, "kept", [])
            result = super().compute_loss(model, inputs, *args, **kwargs)
            loss = result[0] if isinstance(result, tuple) else result
            self.kept.append({"loss": loss.item()})
            return result

        def log(self, logs, *args, **kwargs):
            if "grad_norm" in logs:
                self.kept[-1]["grad_norm"] = float(logs["grad_norm"])
            super().log(logs, *args, **kwargs)
            last = self.state.log_history[-1]
            for name, key in (("rewards/chosen", "reward_chosen"), ("rewards/rejected", "reward_rejected"),
                              ("rewards/accuracies", "accuracy"), ("rewards/margins", "margin"), ("kl", "kl"),
                              ("accuracy", "accuracy"), ("margin", "margin")):
                if name in last:
                    self.kept[-1][key] = float(last[name])

    return Recorded


def orpo(rows, weight, with_prompt):
    """The mean over pairs of chosen's mean NLL - weight * log sigmoid(log odds ratio), gradient clipping and AdamW."""
    model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    kept = []

    def token_logp(prompt, completion):
        ids = torch.tensor([prompt + completion])
        return torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]

    for step in range(STEPS):
        losses, rewards = [], []
        for i in range(BATCH):
            row = rows[(step * BATCH + i) % len(rows)]
            chosen, rejected = (token_logp(row["prompt_ids"], row[side]) for side in ("chosen_ids", "rejected_ids"))
            first = len(row["prompt_ids"]) - 1
            c, r = chosen[first:].mean(), rejected[first:].mean()
            odds = torch.log(c.exp() / (1 - c.exp())) - torch.log(r.exp() / (1 - r.exp()))
            losses.append(-(chosen if with_prompt else chosen[first:]).mean() - weight * torch.nn.functional.logsigmoid(odds))
            rewards.append((weight * c.item(), weight * r.item()))
        optimizer.zero_grad()
        loss = torch.stack(losses).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = lambda values: sum(values) / BATCH
        kept.append({"loss": loss.item(), "grad_norm": norm.item(), "reward_chosen": mean([c for c, _ in rewards]),
                     "reward_rejected": mean([r for _, r in rewards]), "accuracy": mean([float(c > r) for c, r in rewards]),
                     "margin": mean([c - r for c, r in rewards])})
    return kept


def common(directory, batch=BATCH):
    return dict(output_dir=directory, max_steps=STEPS, per_device_train_batch_size=batch, learning_rate=RATE, lr_scheduler_type="constant",
                max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                weight_decay=0.0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, max_length=None, seed=0)


def run(kind, keys, rows):
    if kind == "orpo":
        return orpo(rows, **keys)
    torch.manual_seed(0)
    text_rows = [{"prompt": text(r["prompt_ids"]) + " ", "chosen": text(r["chosen_ids"]), "rejected": text(r["rejected_ids"])}
                 for r in rows]
    words = tokenizer()
    with tempfile.TemporaryDirectory() as directory:
        extra = dict(processing_class=words)
        if kind == "reward":
            model = AutoModelForSequenceClassification.from_pretrained(SCORE, num_labels=1, dtype=torch.float32)
            model.config.pad_token_id = PAD
            trainer = recorded(RewardTrainer)(model, args=RewardConfig(**common(directory), **keys), train_dataset=Dataset.from_list(text_rows),
                                              **extra)
        else:
            model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
            if kind == "dpo":
                trainer = recorded(DPOTrainer)(model, args=DPOConfig(**common(directory), **keys), train_dataset=Dataset.from_list(text_rows),
                                               **extra)
            elif kind in ("kto", "kto_single"):
                single = []
                if kind == "kto_single":
                    for r in text_rows:
                        single += [{"prompt": r["prompt"], "completion": r[side], "label": side == "chosen"} for side in ("chosen", "rejected")]
                for first in range(0, 0 if kind == "kto_single" else len(text_rows), BATCH):
                    for side, label in (("chosen", True), ("rejected", False)):
                        single += [{"prompt": r["prompt"], "completion": r[side], "label": label}
                                   for r in text_rows[first : first + BATCH]]
                trainer = recorded(KTOTrainer)(model, args=KTOConfig(**common(directory, 2 * BATCH), **keys),
                                               train_dataset=Dataset.from_list(single), **extra)
            else:
                trainer = recorded(CPOTrainer)(model, args=CPOConfig(**common(directory), cpo_alpha=0.0, **keys),
                                               train_dataset=Dataset.from_list(text_rows), **extra)
        trainer.train()
    return trainer.kept


RUNS = {
    "sigmoid": ("dpo", {"loss_type": "sigmoid", "beta": 0.3}, {"loss": "sigmoid", "beta": 0.3}),
    "cdpo": ("cpo", {"loss_type": "sigmoid", "beta": 0.3, "label_smoothing": 0.2},
             {"loss": "sigmoid", "beta": 0.3, "label_smoothing": 0.2, "reference": "none"}),
    "hinge": ("dpo", {"loss_type": "hinge", "beta": 0.3}, {"loss": "hinge", "beta": 0.3}),
    "ipo": ("dpo", {"loss_type": "ipo", "beta": 0.3}, {"loss": "ipo", "beta": 0.3}),
    "robust": ("dpo", {"loss_type": "robust", "beta": 0.3, "label_smoothing": 0.1},
               {"loss": "robust", "beta": 0.3, "label_smoothing": 0.1}),
    "simpo": ("cpo", {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.7}, {"loss": "simpo", "beta": 2.0, "simpo_gamma": 0.7}),
    **{name: ("dpo", {"loss_type": name, "beta": 0.3}, {"loss": name, "beta": 0.3})
       for name in ("apo_zero", "apo_down", "nca_pair", "sppo_hard", "aot")},
    "exo_pair": ("dpo", {"loss_type": "exo_pair", "beta": 0.3, "label_smoothing": 0.1},
                 {"loss": "exo_pair", "beta": 0.3, "label_smoothing": 0.1}),
    "aot_smoothed": ("dpo", {"loss_type": "aot", "beta": 0.3, "label_smoothing": 0.2}, {"loss": "aot", "beta": 0.3, "label_smoothing": 0.2}),
    "mixed": ("dpo", {"loss_type": ["hinge", "aot", "sft", "ipo"], "loss_weights": [0.8, 0.5, 0.25, 2.0], "beta": 0.3},
              {"loss": [{"loss": "hinge", "weight": 0.8}, {"loss": "aot", "weight": 0.5}, {"loss": "sft", "weight": 0.25},
                        {"loss": "ipo", "weight": 2.0}], "beta": 0.3}),
    "kto": ("kto", {"beta": 0.3, "desirable_weight": 1.3}, {"loss": "kto", "beta": 0.3, "desirable_weight": 1.3}),
    "kto_single": ("kto_single", {"beta": 0.3}, {"loss": "kto", "beta": 0.3}),
    "orpo": ("orpo", {"weight": 0.25, "with_prompt": False}, {"lambda": 0.25}),
    "orpo_all": ("orpo", {"weight": 0.25, "with_prompt": True}, {"lambda": 0.25, "train_on": "all"}),
    "reward": ("reward", {"center_rewards_coefficient": 0.01}, {"center_rewards_coefficient": 0.01}),
}


def main():
    rows = pairs()
    out = {"rows": rows, "batch_size": BATCH, "learning_rate": RATE, "runs": {}}
    for name, (kind, trl_keys, keys) in RUNS.items():
        steps = run(kind, trl_keys, rows)
        out["runs"][name] = {"single": kind == "kto_single", "verb": kind if kind in ("orpo", "reward") else "dpo", "preference": keys, "steps": steps}
        print(name, [round(s["loss"], 5) for s in steps], steps[0])
    (HERE / "preference.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
