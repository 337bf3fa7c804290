#!/usr/bin/env python3
"""Training small models with layers of special kinds by Temper and by transformers on the same rows.

usage: bench/layers.py [MODEL ...] [--python PATH] [--steps N] [--rows N] [--length N]

mixture    16 experts of width 256, of which a token goes to two, in 6 layers of hidden size 256
dense      as many active parameters: an MLP that is 512 wide
delta      gated delta nets in 6 of 8 layers of hidden size 512 (8 value heads with states of 128 by 128), attention in two
attention  the same with attention in all
latent     DeepSeek-V3's latent attention (16 heads, latents of 256 + 32 numbers) in 8 layers of hidden size 1024, without experts

Weights and rows (tokens, all of one length, so that nothing is padded) are random. transformers trains with torch's
AdamW; of its implementations of experts the fastest here counts. Rates leave the first two steps out.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import peers

COMMON = dict(vocab_size=32000, hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
              max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.02)
DELTA = dict(vocab_size=32000, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
             intermediate_size=1024, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.02,
             model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], linear_num_key_heads=4, linear_num_value_heads=8,
             linear_key_head_dim=128, linear_value_head_dim=128)
MODELS = {"mixture": dict(COMMON, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=16, num_experts_per_tok=2,
                          moe_intermediate_size=256, norm_topk_prob=True, intermediate_size=512),
          "dense": dict(COMMON, model_type="qwen3", architectures=["Qwen3ForCausalLM"], intermediate_size=512),
          "delta": dict(DELTA, layer_types=["full_attention" if i % 4 == 3 else "linear_attention" for i in range(8)]),
          "attention": dict(DELTA, layer_types=["full_attention"] * 8),
          "latent": dict(model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], vocab_size=32000, hidden_size=1024,
                         intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16, q_lora_rank=512,
                         kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, first_k_dense_replace=8,
                         n_routed_experts=8, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=512,
                         max_position_embeddings=8192, tie_word_embeddings=True)}

PEER = peers.PRELUDE + r"""
import torch
from transformers import AutoModelForCausalLM
directory, rows, steps, batch, experts = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **({"experts_implementation": experts} if experts else {})).train()
matrices = [p for p in model.parameters() if p.ndim >= 2]
optimizer = torch.optim.AdamW([dict(params=matrices), dict(params=[p for p in model.parameters() if p.ndim < 2])], lr=1e-3, weight_decay=0.0)
data = [json.loads(line)["input_ids"] for line in open(rows)]
ends, losses, tokens = [], [], []
for step in range(steps):
    x = torch.tensor(data[step * batch:(step + 1) * batch])
    loss = model(input_ids=x, labels=x).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ends.append(now())
    losses.append(loss.item())
    tokens.append(x.numel())
result(**rates(ends, tokens), losses={"loss": losses})
"""


def make(directory, name):
    path = pathlib.Path(directory) / name
    config = path.with_suffix(".json")
    config.write_text(json.dumps(MODELS[name]))
    subprocess.check_call([peers.TEMPER, "init", "--config", config, "--seed", "1", "--output", path], stdout=subprocess.DEVNULL)
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=list(MODELS), metavar="MODEL", help="default: all")
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, default=8, help="a step")
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rows = pathlib.Path(directory) / "rows.jsonl"
        draw = random.Random(0)
        with open(rows, "w") as file:
            for _ in range(args.steps * args.rows):
                ids = [draw.randrange(32000) for _ in range(args.length)]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        for name in args.models or MODELS:
            model = make(directory, name)
            ours = peers.temper("sft", f"{directory}/out-{name}", f"model.path={model}", f"data.train={rows}", f"train.batch_size={args.rows}",
                                f"train.max_steps={args.steps}", "optimizer.learning_rate=1e-3", "optimizer.schedule=constant")
            kinds = ["eager", "grouped_mm", "batched_mm"] if name == "mixture" else [""]
            found = {kind: peers.run_python(args.python, PEER, model, rows, args.steps, args.rows, kind) for kind in kinds}
            for kind, peer in found.items():
                peers.report(f"{name} {kind}".strip(), "transformers", ours, peer)


if __name__ == "__main__":
    main()
