#!/usr/bin/env python3
"""Learning rates of transformers' schedules, step by step. Needs torch and transformers. Writes tests/golden/schedules.json: for each
set of keys the rate of every step, in units of the base rate.
"""
import json
import pathlib

import torch
from transformers import optimization

HERE = pathlib.Path(__file__).resolve().parent
RATE = 0.5


def rates(make, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = make(optimizer)
    out = []
    for _ in range(steps):
        out.append(schedule.get_last_lr()[0] / RATE)
        optimizer.step()
        schedule.step()
    return out


cases = []


def case(keys, steps, make):
    cases.append({"keys": keys, "steps": steps, "rates": rates(make, steps)})


for warmup in (0, 7):
    w = {"warmup_steps": warmup}
    case({**w, "schedule": "cosine"}, 40, lambda o: optimization.get_cosine_schedule_with_warmup(o, warmup, 40))
    case({**w, "schedule": "cosine", "final_lr_fraction": 0.1}, 40,
         lambda o: optimization.get_cosine_with_min_lr_schedule_with_warmup(o, warmup, 40, min_lr_rate=0.1))
    case({**w, "schedule": "linear"}, 40, lambda o: optimization.get_linear_schedule_with_warmup(o, warmup, 40))
    case({**w, "schedule": "constant"}, 20, lambda o: optimization.get_constant_schedule_with_warmup(o, warmup))
    for power in (0.5, 1.0, 2.0):
        case({**w, "schedule": "polynomial", "power": power, "final_lr_fraction": 0.05}, 40,
             lambda o: optimization.get_polynomial_decay_schedule_with_warmup(o, warmup, 40, lr_end=0.05 * RATE, power=power))
    case({**w, "schedule": "inverse_sqrt"}, 60, lambda o: optimization.get_inverse_sqrt_schedule(o, warmup))
    for shape, name in (("cosine", "cosine"), ("linear", "linear"), ("sqrt", "1-sqrt")):
        case({**w, "schedule": "wsd", "decay_steps": 11, "decay_shape": shape}, 40,
             lambda o: optimization.get_wsd_schedule(o, warmup, 11, num_training_steps=40, decay_type=name))
(HERE / "schedules.json").write_text(json.dumps(cases) + "\n")
