#!/usr/bin/env python3
"""Writes tests/fuzz/seeds: one small valid file of each kind. Needs torch, safetensors and zstandard."""
import gzip
import json
import pathlib

import torch
import zstandard
from safetensors.torch import save

seeds = pathlib.Path(__file__).parent / "seeds"


def write(name, data):
    path = seeds / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


base = torch.arange(6, dtype=torch.float32)
tensors = {"a": base.reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
write("safetensors/small", save(tensors))
strided = {**tensors, "t": base.reshape(2, 3).t(), "e": base[:1].expand(4), "p": torch.nn.Parameter(torch.ones(1))}
for name, zipped in (("zip", True), ("legacy", False)):
    path = seeds / "pickle" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(strided, path, _use_new_zipfile_serialization=zipped)
index = {"metadata": {"total_size": 18}, "weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}
write("weight_index/small", json.dumps(index).encode())
rows = [
    {"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}], "tools": None},
    {"prompt": "ab", "completion": "cd"},
    {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
    {"text": "abcd\u00e9"},
    {"input_ids": [0, 1, 2], "labels": [-100, 1, 2]},
    {"prompt_ids": [1, 2], "answer": 1.5e3},
]
text = "".join(json.dumps(row) + "\n" for row in rows).encode()
write("rows/plain", b"\0" + text)
write("rows/gzip", b"\1" + gzip.compress(text, mtime=0))
write("rows/zstd", b"\2" + zstandard.compress(text))
