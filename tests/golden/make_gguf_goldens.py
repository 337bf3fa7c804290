#!/usr/bin/env python3
"""Writes tests/golden/gguf: tensors in every block format that Temper reads, with the values that gguf-py gives them,
and a tiny Llama whose matrices are in these formats. Needs gguf (PyPI) and numpy."""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

out = pathlib.Path(__file__).parent / "gguf"
out.mkdir(exist_ok=True)
rng = np.random.default_rng(7)
# Where the scales of a block lie in its bytes: they are set to usual ones, all other bytes are drawn by lot.
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.MXFP4: []}
LARGEST = {T.Q2_K: 48, T.Q3_K: 128, T.Q4_K: 960, T.Q5_K: 1984, T.Q6_K: 4096, T.Q8_0: 128, T.IQ4_NL: 128, T.Q5_0: 16,
           T.Q5_1: 32, T.Q4_1: 16}


def blocks(kind, rows, width, scale=1.0):
    """Bytes [rows, bytes of a row]; values are some `scale` large."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    count = rows * width // values
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    largest = LARGEST.get(kind, 8)
    for at in HALVES[kind]:
        half = (rng.uniform(0.5, 1, count) * scale / largest).astype(np.float16)
        if at in (2, 82):  # minimums: near half of the largest value
            times = -8 if kind == T.Q4_1 else -16 if kind == T.Q5_1 else 2
            half = (half.astype(np.float32) * times).astype(np.float16)
        raw[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
    if kind == T.MXFP4:
        raw[:, 0] = rng.integers(120, 128, count) + int(np.log2(scale))
    return raw.reshape(rows, -1)


def write_blocks():
    writer = gguf.GGUFWriter(out / "blocks.gguf", "test")
    for kind in HALVES:
        raw = blocks(kind, 2, 512)
        writer.add_tensor(f"codes.{kind.name}", raw, raw_dtype=kind)
        writer.add_tensor(f"values.{kind.name}", gguf.dequantize(raw, kind).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model():
    writer = gguf.GGUFWriter(out / "quantized.gguf", "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_feed_forward_length(256)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(32)
    writer.add_tokenizer_model("none")
    matrices = {"token_embd": (T.Q8_0, 61, 256), "output": (T.Q6_K, 61, 256), "blk.0.attn_q": (T.Q4_K, 128, 256),
                "blk.0.attn_k": (T.Q5_K, 64, 256), "blk.0.attn_v": (T.Q5_1, 64, 256),
                "blk.0.attn_output": (T.Q4_0, 256, 128), "blk.0.ffn_gate": (T.Q3_K, 256, 256),
                "blk.0.ffn_up": (T.Q2_K, 256, 256), "blk.0.ffn_down": (T.IQ4_NL, 256, 256)}
    for name, (kind, rows, width) in matrices.items():
        raw = blocks(kind, rows, width, 2.0 if name == "token_embd" else 0.125)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, 256).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


write_blocks()
write_model()
