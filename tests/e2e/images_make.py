"""Tiny models that read images, of the goldens' weights, and rows: images_make.py SOURCE_DIR. No image library:
PNGs are written with zlib. (Gemma 4's golden has a table of positions that is smaller than its processor's images.)"""
import base64
import json
import os
import random
import shutil
import struct
import sys
import zlib

GOLDENS = sys.argv[1] + "/tests/golden/vision/"
HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
QWEN = {"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 64, "longest_edge": 4096}}
# Of each family preprocessor_config.json and processor_config.json.
FAMILIES = {
    "qwen3_vl": (QWEN, None),
    "qwen3_5": (QWEN, None),
    "qwen2_5_vl": (QWEN, None),
    "gemma3": ({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 24, "width": 24}} | HALVES,
               {"image_seq_length": 9}),
    "lfm2_vl": ({"image_processor_type": "Lfm2VlImageProcessorFast", "encoder_patch_size": 4, "downsample_factor": 2,
                 "tile_size": 16, "min_image_tokens": 1, "max_image_tokens": 16, "max_num_patches": 64, "min_tiles": 2,
                 "max_tiles": 4}, None),
    "smolvlm": ({"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 48},
                 "max_image_size": {"longest_edge": 24}}, {"image_seq_len": 4}),
}
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}\
<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def dump(value, path):
    with open(path, "w") as file:
        json.dump(value, file)


def png(path, width, height, seed):
    rng = random.Random(seed)
    rows = b"".join(b"\0" + bytes(rng.choice((0, 90, 255)) for _ in range(3 * width)) for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)))
        file.write(chunk(b"IEND", b""))


def tokenizer():
    """A vocabulary of 61, most of it single characters."""
    special = {"<pad>": 0, "<|im_end|>": 2, "<|im_start|>": 3, "<|image_pad|>": 7, "<|vision_start|>": 8,
               "<|vision_end|>": 9}
    free = [i for i in range(61) if i not in special.values()]
    characters = "\u0120\u010a" + "abcdefghijklmnopqrstuvwxyz0123456789?!.,:;-+=()<|>_"
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": text} | flags for text, i in special.items()],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": dict(zip(characters, free)) | special, "merges": []}}


for name, (settings, processor) in FAMILIES.items():
    shutil.copytree(GOLDENS + name, name, copy_function=shutil.copyfile)
    vision = json.load(open(name + "/config.json"))["vision_config"]
    if settings is QWEN:
        settings = settings | {"patch_size": vision["patch_size"], "merge_size": vision["spatial_merge_size"],
                               "temporal_patch_size": vision["temporal_patch_size"]}
    dump(settings, name + "/preprocessor_config.json")
    if processor:
        dump(processor, name + "/processor_config.json")
    dump({"image_token": "<img>", "boi_token": "<boi>", "eoi_token": "<eoi>"}, name + "/tokenizer_config.json")
os.rename("qwen3_vl", "text")  # the one that reads text, too
dump(tokenizer(), "text/tokenizer.json")
dump({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}, "text/tokenizer_config.json")
dump({"eos_token_id": 2}, "text/generation_config.json")

png("a.png", 24, 16, 1)
png("a2.png", 24, 16, 5)
png("b.png", 40, 40, 2)
png("wide.png", 9000, 1, 3)
png("large.png", 300, 300, 4)
os.mkdir("sub")
shutil.copy("b.png", "sub/b.png")
whole = open("b.png", "rb").read()
open("cut.png", "wb").write(whole[: len(whole) // 2])
open("not.png", "w").write("no image")
open("uri", "w").write("data:image/png;base64," + base64.b64encode(open("a.png", "rb").read()).decode())
