#!/usr/bin/env python3
"""Makes tests/golden/vision: tiny models of every family that reads images, and what transformers computes with them.

    python tests/golden/make_vision_goldens.py [NAME...]       (torch 2.13, transformers 5.24 and later)

Every directory is a Hugging Face model of random weights, as in make_model_goldens.py, with expected.safetensors and
expected.json:
  images                of each image its grid of patches (rows, columns) or, of LFM2-VL, the grids of its tiles, and
                        the numbers of tokens of its parts, between which its rows have text
  pixels.I              its pixels as transformers' processors give them
  features.I, deep.I    what the language model reads in place of its tokens; what is added after the first layers
  rows                  token ids, and which images stand at their placeholders
  logp                  log p of every token after a row's first that is no placeholder, the rows one after another
  grad.NAME             gradients of -logp's mean, of the language model and, behind `tower.`, of the vision tower
Everything is computed in float32 with eager attention, one row at a time: no padding, no cache.
"""
import json
import shutil
import sys
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_model_goldens as models  # noqa: E402

HERE = Path(__file__).resolve().parent / "vision"
IMAGE = 7  # the placeholder's id
TOKENS = dict(image_token_id=IMAGE, vision_start_token_id=8, vision_end_token_id=9)
GRIDS = [(4, 6), (10, 2)]  # patches; merged 2 x 3 and 5 x 1


TOWERS = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "connector.", "embed_vision.")


class Qwen:
    def images(self, config, generator):
        vision = config.vision_config
        width = 3 * vision.temporal_patch_size * vision.patch_size**2
        return [dict(pixels=torch.randn((h * w, width), generator=generator), grid=(h, w), parts=[h * w // 4])
                for h, w in GRIDS]

    def inputs(self, images):
        return dict(pixel_values=torch.cat([i["pixels"] for i in images]),
                    image_grid_thw=torch.tensor([(1, *i["grid"]) for i in images]))

    types = "mm_token_type_ids"


class Tiles:
    """Tiles [tiles, 3, side, side], as many of each image as `counts` says, of so many tokens."""
    def __init__(self, counts, tokens, grouped, types=None):
        self.counts, self.tokens, self.grouped, self.types = counts, tokens, grouped, types

    def images(self, config, generator):
        side = config.vision_config.image_size
        return [dict(pixels=torch.randn((n, 3, side, side), generator=generator), parts=[self.tokens] * n)
                for n in self.counts]

    def inputs(self, images):
        pixels = torch.cat([i["pixels"] for i in images])
        return dict(pixel_values=pixels[None] if self.grouped else pixels)


class Gemma4:
    types = "mm_token_type_ids"

    def images(self, config, generator):
        width = 3 * config.vision_config.patch_size**2
        return [dict(pixels=torch.rand((h * w, width), generator=generator), grid=(h, w), parts=[h * w // 4])
                for h, w in GRIDS]

    def inputs(self, images):
        most = max(h * w for h, w in GRIDS)
        pixels, places = [], []
        for i in images:
            h, w = i["grid"]
            place = [(x, y) for y in range(h) for x in range(w)]
            pixels.append(torch.nn.functional.pad(i["pixels"], (0, 0, 0, most - h * w)))
            places.append(place + [(-1, -1)] * (most - h * w))
        return dict(pixel_values=torch.stack(pixels), image_position_ids=torch.tensor(places))


class Lfm2:
    types = None

    def images(self, config, generator):
        width, most = 3 * config.vision_config.patch_size**2, 24
        return [dict(pixels=torch.randn((len(tiles), most, width), generator=generator), tiles=tiles,
                     parts=[h * w // 4 for h, w in tiles]) for tiles in ([(4, 6), (2, 2)], [(2, 8)])]

    def inputs(self, images):
        shapes = torch.tensor([shape for i in images for shape in i["tiles"]])
        pixels = torch.cat([i["pixels"] for i in images])
        mask = torch.arange(pixels.shape[1])[None] < shapes.prod(-1)[:, None]
        return dict(pixel_values=pixels, spatial_shapes=shapes, pixel_attention_mask=mask.int())


def families():
    tower = dict(depth=3, hidden_size=32, intermediate_size=20, num_heads=2, patch_size=4, out_hidden_size=24)
    table = dict(num_position_embeddings=25)
    rope = dict(rope_type="default", rope_theta=300.0)
    yield ("qwen3_vl", transformers.Qwen3VLForConditionalGeneration, transformers.Qwen3VLConfig(
        text_config=models.sized(num_hidden_layers=4, rope_parameters=rope | dict(mrope_section=[2, 2, 2])),
        vision_config=dict(**tower, **table, deepstack_visual_indexes=[0, 2]), **TOKENS), Qwen())
    net = models.sized(rms_norm_eps=0.02, num_hidden_layers=3, linear_conv_kernel_dim=3, linear_key_head_dim=7,
                       linear_value_head_dim=10, linear_num_key_heads=2, linear_num_value_heads=4, head_dim=16,
                       layer_types=["full_attention", "linear_attention", "full_attention"],
                       rope_parameters=rope | dict(partial_rotary_factor=0.75, mrope_section=[2, 2, 2]))
    yield ("qwen3_5", transformers.Qwen3_5ForConditionalGeneration, transformers.Qwen3_5Config(
        text_config=net, vision_config=tower | table, **TOKENS), Qwen())
    sparse = {k: v for k, v in net.items() if k != "intermediate_size"} | dict(
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10, shared_expert_intermediate_size=14)
    yield ("qwen3_5_moe", transformers.Qwen3_5MoeForConditionalGeneration, transformers.Qwen3_5MoeConfig(
        text_config=sparse, vision_config=tower | table, **TOKENS), Qwen())
    yield ("qwen2_5_vl", transformers.Qwen2_5_VLForConditionalGeneration, transformers.Qwen2_5_VLConfig(
        text_config={k: v for k, v in models.sized(
            hidden_size=24, rope_parameters=rope | dict(mrope_section=[1, 1, 1])).items() if k != "head_dim"},
        vision_config=tower | dict(fullatt_block_indexes=[1], window_size=16), **TOKENS), Qwen())
    siglip = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, patch_size=4)
    yield ("gemma3", transformers.Gemma3ForConditionalGeneration, transformers.Gemma3Config(
        text_config=models.sized(num_hidden_layers=3, sliding_window=6, query_pre_attn_scalar=15,
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        vision_config=dict(model_type="siglip_vision_model", image_size=24, **siglip), mm_tokens_per_image=9,
        image_token_id=IMAGE, boi_token_index=8, eoi_token_index=9), Tiles([1, 1], 9, False, "token_type_ids"))
    yield ("smolvlm", transformers.SmolVLMForConditionalGeneration, transformers.SmolVLMConfig(
        text_config=dict(model_type="llama", **models.sized(rope_parameters=rope)),
        vision_config=dict(image_size=24, **siglip), scale_factor=3, image_token_id=IMAGE), Tiles([3, 1], 4, True))
    yield ("lfm2_vl", transformers.Lfm2VlForConditionalGeneration, transformers.Lfm2VlConfig(
        text_config=dict(model_type="lfm2", **{k: v for k, v in models.sized(
            num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], block_multiple_of=4,
            rope_parameters=rope).items() if k != "head_dim"}),
        vision_config=dict(model_type="siglip2_vision_model", num_patches=25, **siglip), projector_hidden_size=20,
        image_token_id=IMAGE), Lfm2())


    gemma4 = models.sized(num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, hidden_size=20, head_dim=8,
                          sliding_window=6, layer_types=["sliding_attention", "full_attention", "full_attention"],
                          global_head_dim=16)
    vision = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=8, patch_size=4, pooling_kernel_size=2, position_embedding_size=12)
    ids = dict(image_token_id=IMAGE, video_token_id=5, audio_token_id=6, audio_config=None)
    yield ("gemma4", transformers.Gemma4ForConditionalGeneration, transformers.Gemma4Config(
        text_config=gemma4 | dict(num_kv_shared_layers=1, vocab_size_per_layer_input=61,
                                  hidden_size_per_layer_input=12),
        vision_config=vision | dict(use_clipped_linears=True), **ids), Gemma4())
    yield ("gemma4_open", transformers.Gemma4ForConditionalGeneration, transformers.Gemma4Config(
        text_config=gemma4 | dict(hidden_size_per_layer_input=0, use_bidirectional_attention="vision"),
        vision_config=vision | dict(standardize=True), **ids), Gemma4())


def text(generator, count):
    return torch.randint(10, 61, (count,), generator=generator).tolist()


def rows_of(images, generator):
    """Texts with images between, one after another, or none; an image first and last."""
    def place(image):
        ids = [8]
        for part in images[image]["parts"]:
            ids += [IMAGE] * part + [11]
        return ids[:-1] + [9]
    return [(text(generator, 4) + place(0) + text(generator, 6) + place(1) + text(generator, 7), [0, 1]),
            (text(generator, 9), []),
            (place(1)[1:] + place(0) + text(generator, 5), [1, 0]),
            (text(generator, 12) + place(0) + text(generator, 11), [0])]


def inputs_of(kind, images, ids, which):
    x = dict(input_ids=torch.tensor([ids]))
    if kind.types:
        x[kind.types] = torch.tensor([[int(i == IMAGE) for i in ids]])
    return x | (kind.inputs([images[i] for i in which]) if which else {})


def log_probabilities(model, kind, images, rows):
    parts = []
    for ids, which in rows:
        logits = model(**inputs_of(kind, images, ids, which), use_cache=False).logits[0, :-1]
        logp = torch.log_softmax(logits.float(), -1).gather(1, torch.tensor(ids)[1:, None])[:, 0]
        parts.append(logp[torch.tensor(ids)[1:] != IMAGE])
    return torch.cat(parts)


def features_of(model, kind, images):
    tensors = {}
    for i, image in enumerate(images):
        with torch.no_grad():
            out = model.model.get_image_features(**kind.inputs([image]), return_dict=True)
        tensors[f"features.{i}"] = torch.cat(tuple(out.pooler_output))
        if deep := getattr(out, "deepstack_features", None):
            tensors[f"deep.{i}"] = torch.stack([torch.cat(tuple(d)) if not torch.is_tensor(d) else d for d in deep])
    return tensors


def randomize_tower(model):
    with torch.no_grad():
        for name, buffer in model.named_buffers():  # Gemma 4's
            if name.endswith(("_min", "_max")):
                buffer.fill_(0.8 if name.endswith("_max") else -0.9)
            elif name.endswith(("std_bias", "std_scale")):
                buffer.copy_(0.3 * torch.randn_like(buffer) + float(name.endswith("scale")))
        for name, p in model.named_parameters():
            if not any(tower in name for tower in TOWERS):
                continue
            if "norm" in name:
                p.copy_(0.3 * torch.randn_like(p) + float(name.endswith("weight")))
                if "q_norm" in name or "k_norm" in name:  # Gemma 4's scores have no factor that makes them small
                    p.mul_(0.5)
            elif p.ndim == 1:
                p.copy_(0.3 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) / p[0].numel() ** 0.5)


def own_name(name):
    if any(tower in name for tower in TOWERS):
        return "tower." + name.removeprefix("model.")
    return name.replace("model.language_model.", "model.").replace("model.text_model.", "model.")


def make(name, cls, config, kind):
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    for part in (config, config.get_text_config()):
        part.pad_token_id = part.bos_token_id = part.eos_token_id = None
    if name.startswith("gemma4"):  # whose class asks for one
        config.get_text_config().pad_token_id = 0
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = cls(config).eval()
    for module in model.modules():  # padding, of which there is none here, would have no gradient
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    models.randomize(model, config)
    randomize_tower(model)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    images = kind.images(config, generator)
    tensors = {f"pixels.{i}": image["pixels"] for i, image in enumerate(images)}
    tensors |= features_of(model, kind, images)
    counts = [tensors[f"features.{i}"].shape[0] for i in range(len(images))]
    assert counts == [sum(image["parts"]) for image in images]
    rows = rows_of(images, generator)
    logp = log_probabilities(model, kind, images, rows)
    tensors["logp"] = logp.detach()
    (-logp.mean()).backward()
    for parameter, p in model.named_parameters():
        if p.grad is not None:
            tensors |= {"grad." + n: g for n, g in models.by_expert(own_name(parameter), p.grad, False).items()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, directory / "expected.safetensors")
    expected = dict(placeholder=IMAGE, images=[{k: v for k, v in image.items() if k != "pixels"} for image in images],
                    rows=[dict(tokens=ids, images=which) for ids, which in rows])
    (directory / "expected.json").write_text(json.dumps(expected) + "\n")
    for file in directory.rglob("*.*"):
        file.chmod(0o644)
    print(name, sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()) // 1000, "KB", counts,
          -tensors["logp"].mean().item())


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for family in families():
        if not sys.argv[1:] or family[0] in sys.argv[1:]:
            make(*family)
