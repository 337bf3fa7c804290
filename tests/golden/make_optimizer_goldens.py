#!/usr/bin/env python3
"""Ten steps of each optimizer by its reference: torch.optim's AdamW, SGD and Muon, transformers' Adafactor, bitsandbytes' Lion and
AdamW8bit on the CPU. Needs torch, transformers and bitsandbytes. Writes tests/golden/optimizers.json: for each set of keys the
parameters' values afterwards. Values and gradients in the beginning are numbers(): the test computes them again.
"""
import inspect
import json
import pathlib
import sys

import bitsandbytes
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STEPS, RATE, DECAY, MOMENTUM = 10, 1e-2, 0.1, 0.95
SHAPES = {"wide": (10, 24), "tall": (24, 10), "vector": (17,)}
LARGE = (65, 64)  # enough elements for moments in 8 bits; no whole number of blocks


def numbers(shape, seed):
    """Spread over [-0.7, 1.3)."""
    count = torch.Size(shape).numel()
    values = [(i * 2654435761 + seed * 97003 + i * i * 40503) % 65536 / 32768 - 0.7 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).float().reshape(shape)


def ten_steps(make, shapes):
    parameters = {name: torch.nn.Parameter(numbers(shape, 1000)) for name, shape in shapes.items()}
    optimizers = make(parameters)
    for step in range(STEPS):
        for name, p in parameters.items():
            p.grad = numbers(shapes[name], step)
        for optimizer in optimizers:
            optimizer.step()
    return {name: [float(f"{x:.8g}") for x in p.detach().flatten().tolist()] for name, p in parameters.items()}


def groups(parameters):
    """Decay on matrices alone."""
    return [{"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": DECAY},
            {"params": [p for p in parameters.values() if p.ndim == 1], "weight_decay": 0.0}]


def muon(adjust):
    def make(parameters):
        return [torch.optim.Muon([p for p in parameters.values() if p.ndim == 2], lr=RATE, weight_decay=DECAY, momentum=MOMENTUM,
                                 adjust_lr_fn=adjust),
                torch.optim.AdamW([p for p in parameters.values() if p.ndim == 1], lr=RATE, weight_decay=0.0)]
    return make


cases = []


def case(keys, make, shapes=SHAPES, **more):
    cases.append({"keys": keys, **more, "shapes": shapes, "values": ten_steps(make, shapes)})


case({"name": "adamw"}, lambda p: [torch.optim.AdamW(groups(p), lr=RATE)])
# torch's SGD adds the decay to the gradient, as temper's does.
case({"name": "sgd", "momentum": 0.9}, lambda p: [torch.optim.SGD(groups(p), lr=RATE, momentum=0.9)])
case({"name": "lion", "betas": [0.9, 0.99]}, lambda p: [bitsandbytes.optim.Lion(groups(p), lr=RATE, betas=(0.9, 0.99), optim_bits=32)])
case({"name": "adafactor"},
     lambda p: [transformers.optimization.Adafactor(groups(p), lr=RATE, relative_step=False, scale_parameter=False, warmup_init=False)])


def quantize(values, table, largest, codes, size):
    """The nearest value of the table. bitsandbytes' CPU library finds it by a coarse table, and is one off near the middle of two."""
    blocks = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % size)).reshape(-1, size)
    largest.copy_(blocks.abs().amax(1))
    distance = (blocks / largest.unsqueeze(1)).unsqueeze(2).sub(table).abs()
    codes.copy_(distance.argmin(2).flatten()[:values.numel()].reshape(codes.shape))


cpu = sys.modules["bitsandbytes.backends.cpu.ops"]
assert hasattr(cpu, "_quant_blockwise_fp32_direct")
cpu._quant_blockwise_fp32_direct = quantize
case({"name": "adamw8bit"}, lambda p: [bitsandbytes.optim.AdamW8bit(groups(p), lr=RATE)], {"large": LARGE, "vector": (17,)})
case({"name": "muon", "momentum": MOMENTUM, "muon.adjust_lr": "original"}, muon("original"), bfloat16=True)
# In float32, as temper computes: torch's own function but for the rounding of its input.
module = sys.modules["torch.optim._muon"]
source = inspect.getsource(module._zeropower_via_newtonschulz)
assert source.count(".bfloat16()") == 1
exec(source.replace(".bfloat16()", ".clone()"), module.__dict__)
for adjust in ("original", "match_rms_adamw"):
    case({"name": "muon", "momentum": MOMENTUM, "muon.adjust_lr": adjust}, muon(adjust))
(HERE / "optimizers.json").write_text(json.dumps(cases) + "\n")
