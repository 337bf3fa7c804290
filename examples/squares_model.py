#!/usr/bin/env python3
"""Makes all that configs/vision.yaml trains on: a small model that sees (a Qwen3-VL with fresh weights), and pictures.

    python3 examples/squares_model.py squares

A row asks how many squares a picture has: 1 to 9 of them, of three colors, in a grid of 3 x 3. sft.jsonl has answers,
for a warm-up; rows.jsonl and test.jsonl have prompts with `answer`, for the reward.
"""
import array
import json
import math
import pathlib
import random
import struct
import sys
import zlib

import word_model

WORDS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "user", "assistant",
         "how many squares?", *"0123456789"]
TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}{%- if message.content is string %}{{ message.content }}"
            "{%- else %}{%- for part in message.content %}{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
            "{%- else %}{{ part.text }}{%- endif %}{%- endfor %}{%- endif %}<|im_end|>{%- endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")
HIDDEN, MLP, LAYERS, SIDE = 64, 128, 2, 48
COLORS = [(200, 30, 30), (30, 30, 200), (20, 20, 20)]

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "squares")
(out / "model").mkdir(parents=True, exist_ok=True)
(out / "images").mkdir(exist_ok=True)
random.seed(1)


def write_json(name, value):
    (out / "model" / name).write_text(json.dumps(value))


def write_model():
    word_model.write_tokenizer(out / "model", WORDS, TEMPLATE)
    write_json("preprocessor_config.json", {
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 8, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 65536}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    write_json("config.json", {
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": True,
        "image_token_id": 4, "video_token_id": 5, "vision_start_token_id": 2, "vision_end_token_id": 3,
        "text_config": {"model_type": "qwen3_vl_text", "vocab_size": len(WORDS), "hidden_size": HIDDEN, "intermediate_size": MLP,
                        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                        "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "eos_token_id": 1,
                        "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                                        "mrope_section": [4, 2, 2], "mrope_interleaved": True}},
        "vision_config": {"model_type": "qwen3_vl_vision", "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
                          "hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "patch_size": 8, "temporal_patch_size": 2,
                          "spatial_merge_size": 2, "out_hidden_size": HIDDEN, "num_position_embeddings": 64,
                          "deepstack_visual_indexes": []}})
    write_weights(shapes())


def shapes():
    linear = lambda name, rows, columns: {name + ".weight": [rows, columns], name + ".bias": [rows]}
    norm = lambda name, width: {name + ".weight": [width], name + ".bias": [width]}
    found = {"model.language_model.embed_tokens.weight": [len(WORDS), HIDDEN], "model.language_model.norm.weight": [HIDDEN]}
    for i in range(LAYERS):
        layer = f"model.language_model.layers.{i}."
        for name, shape in {"input_layernorm": [HIDDEN], "post_attention_layernorm": [HIDDEN], "self_attn.q_norm": [16], "self_attn.k_norm": [16],
                            "self_attn.q_proj": [64, HIDDEN], "self_attn.k_proj": [32, HIDDEN], "self_attn.v_proj": [32, HIDDEN],
                            "self_attn.o_proj": [HIDDEN, 64], "mlp.gate_proj": [MLP, HIDDEN], "mlp.up_proj": [MLP, HIDDEN],
                            "mlp.down_proj": [HIDDEN, MLP]}.items():
            found[layer + name + ".weight"] = shape
    see, block = "model.visual.", "model.visual.blocks.0."
    found |= {see + "patch_embed.proj.weight": [32, 3, 2, 8, 8], see + "patch_embed.proj.bias": [32], see + "pos_embed.weight": [64, 32]}
    found |= norm(block + "norm1", 32) | norm(block + "norm2", 32) | linear(block + "attn.qkv", 96, 32) | linear(block + "attn.proj", 32, 32)
    found |= linear(block + "mlp.linear_fc1", 64, 32) | linear(block + "mlp.linear_fc2", 32, 64)
    return found | norm(see + "merger.norm", 32) | linear(see + "merger.linear_fc1", 128, 128) | linear(see + "merger.linear_fc2", HIDDEN, 128)


def write_weights(tensors):
    header, data = {}, b""
    for name, shape in tensors.items():
        count = math.prod(shape)
        if len(shape) > 1:
            values = [random.gauss(0, 0.08) for _ in range(count)]
        else:
            values = [0.0 if name.endswith(".bias") else 1.0] * count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += array.array("f", values).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (out / "model" / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def picture(path, count):
    pixels = [[(255, 255, 255)] * SIDE for _ in range(SIDE)]
    for cell in random.sample(range(9), count):
        top, left, color = cell // 3 * 16 + 3, cell % 3 * 16 + 3, random.choice(COLORS)
        for y in range(top, top + 10):
            pixels[y][left:left + 10] = [color] * 10
    rows = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_rows(name, number, answers):
    with open(out / (name + ".jsonl"), "w") as file:
        for i in range(number):
            count, image = random.randint(1, 9), f"images/{name}{i}.png"
            picture(out / image, count)
            row = {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "how many squares?"}]}],
                   "images": [image]}
            if answers:
                row["messages"].append({"role": "assistant", "content": str(count)})
            else:
                row["answer"] = str(count)
            file.write(json.dumps(row) + "\n")


write_model()
write_rows("sft", 400, True)
write_rows("rows", 2000, False)
write_rows("test", 200, False)
