#!/usr/bin/env python3
"""Writes tests/fuzz/seeds: one small valid file of each kind. Needs torch, safetensors and zstandard."""
import base64
import gzip
import json
import pathlib
import struct

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


def field(number, value):
    """A field of a protobuf message: bytes, or a number."""
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def dense(data, dtype, count):
    return field(1, data) + field(3, dtype) + field(4, bytes([count]))


chunk = field(1, field(1, bytes([1, 0, 0, 0, 2, 0, 0, 0])))
inputs = {b"target_tokens": dense(bytes([2, 0, 0, 0, 0, 0, 0, 0] * 2), 2, 2), b"weights": dense(bytes([0, 0, 128, 63] * 2), 1, 2)}
datum = field(1, chunk) + b"".join(field(2, field(1, name) + field(2, tensor)) for name, tensor in inputs.items())
body = field(1, b"s:train:0") + field(2, 7) + field(3, datum) + field(4, b"ppo") + field(6, 1)
write("wire/plain", b"\0" + body)
write("wire/zstd", b"\1" + zstandard.compress(body))
write("tables/csv", b"\0" + b'prompt,completion\na,"b ""c"", d"\n\n"e\nf",g\n')
write("tables/tsv", b"\1" + b'text\tn\na b\t1\n')
write("tables/json", b"\2" + json.dumps(rows).encode())
for name in ("keys", "late"):
    write(f"tables/{name}", b"\3" + (seeds.parent.parent / f"golden/parquet/{name}.parquet").read_bytes())
schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "b": {"enum": [1, None]}, "c": {"$ref": "#/$defs/d"}},
          "required": ["a"], "additionalProperties": False, "$defs": {"d": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3}}}
write("rules/schema", b"\0" + json.dumps(schema).encode())
write("rules/pattern", b"\1" + rb'^(a|[^"\\b-d]+)\d{2,}\s?$')
write("rules/gbnf", b"\2" + b'root ::= "a." [^.]* . # any.\nx ::= root+ | "\\"."\n')
write("regex/qwen", rb"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+" + b"\nHello, it's 42\n\n")
write("http/post", b"\x40" + b"POST /v1/chat%20x?a=b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
write("http/chunked", b"\x10" + b"POST /stream HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://localhost:3000\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n"
      b"GET / HTTP/1.0\r\n\r\n")
write("client/whole", b"\0" + b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}')
write("client/chunked", b"\1" + b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n')
write("client/busy", b"\1" + b'HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nConnection: close\r\n\r\n')
write("calls/hermes", b'<think>so</think>x<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>')
write("calls/python", b'<|python_tag|>f.call(x=1, y=["a", None]); [TOOL_CALLS]g[ARGS]{}')


# Two small GGUF files: tensors of floats and of blocks, and a tokenizer of either kind.
def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, bytes):
        return struct.pack("<I", 8) + gguf_text(value)
    kind, one = {bytes: (8, gguf_text), int: (5, lambda v: struct.pack("<i", v)), float: (6, lambda v: struct.pack("<f", v))}[type(value[0])]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(one, value))


def gguf_file(keys):
    tensors = gguf_text(b"a") + struct.pack("<IQIQ", 1, 2, 0, 0) + gguf_text(b"b") + struct.pack("<IQQIQ", 2, 32, 1, 2, 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(keys)) + b"".join(gguf_text(key) + gguf_value(value) for key, value in keys.items()) + tensors
    return head + bytes(-len(head) % 32) + bytes(32) + bytes(18)


ggml = b"tokenizer.ggml."
bytewise = {ggml + b"model": b"gpt2", ggml + b"pre": b"qwen2", ggml + b"tokens": [b"a", b"b", b"ab", b"<s>"], ggml + b"token_type": [1, 1, 1, 3],
            ggml + b"merges": [b"a b"], ggml + b"bos_token_id": 3, ggml + b"add_bos_token": True}
scored = {ggml + b"model": b"llama", ggml + b"tokens": [b"<unk>", b"a", b"\xe2\x96\x81", b"\xe2\x96\x81a"] + [b"<0x%02X>" % i for i in range(256)],
          ggml + b"token_type": [2, 1, 1, 1] + [6] * 256, ggml + b"scores": [0.0, -3.0, -2.0, -1.0] + [0.0] * 256}
write("gguf/bytewise", gguf_file(bytewise))
write("gguf/scored", gguf_file(scored))
for name in ("progressive.jpg", "cmyk.jpg", "turn6.jpg", "palette_alpha.png", "deep6_interlaced.png", "turn_late.png", "lossy_alpha.webp", "lossless.webp"):
    write(f"image/{name}", (seeds.parent.parent / "golden/images/files" / name).read_bytes())

# Images' URIs, rows with images, and how images are processed.
files = seeds.parent.parent / "golden/images/files"
uri = "data:image/png;base64," + base64.b64encode((files / "bits1.png").read_bytes()).decode()
write("uri/png", uri.encode())
write("uri/jpeg", base64.encodebytes((files / "point.jpg").read_bytes()))
part, own = {"type": "image"}, {"type": "image_url", "image_url": {"url": uri}}
for name, row in {
    "parts": {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "ab"}]}, {"role": "assistant", "content": "c"}], "images": [uri]},
    "own": {"prompt": [{"role": "user", "content": [own, {"type": "text", "text": "a"}]}], "completion": [{"role": "assistant", "content": "b"}]},
    "tags": {"messages": [{"role": "user", "content": "a<image>b"}, {"role": "assistant", "content": "c"}], "image": {"bytes": uri.split(",")[1], "path": None}},
    "paths": {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "images": ["../x.png", {"path": "y.jpg", "bytes": None}]},
    "text": {"text": "a{" + "i" * 7 + "}b", "images": [uri]},
    "ids": {"tokens": [0, 4, 4, 4, 4, 4, 4, 4, 1], "images": uri},
}.items():
    write(f"image_rows/{name}", json.dumps(row).encode())
for model in sorted((files.parent / "models").iterdir()):
    read = {path.stem: json.loads(path.read_text()) for path in sorted(model.iterdir())}
    write(f"processor/{model.name}", bytes([60, 90, 0, 0]) + json.dumps(read).encode())
