#!/usr/bin/env python3
"""Makes tiny models in tests/golden/models as the tools that quantize write them, and what these tools read from them.

    python tests/golden/make_checkpoint_goldens.py [NAME...]
    (torch 2.13, transformers 5.24, gptqmodel 7.7, compressed-tensors 0.20, bitsandbytes 0.50)

NAME: gptq, gptq_dynamic, gptq_moe, gptq_phi3, awq, compressed_pack, compressed_int, compressed_float, fp8, bnb_fp4, bnb_int8.
Every directory has random weights whose layers are quantized in the plainest way; the tool packs and dequantizes them.
expected.json: sequences, and for each quantized matrix the SHA-256 of its values in float32, [out, in], little-endian.
expected.safetensors: logp of every token of the sequences after a sequence's first, by transformers in float32 on these
values. What a tool no longer does is computed here by what it did: compressed-tensors' actorder: group (until 0.15).
"""
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent / "models"
SIZES = dict(vocab_size=64, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             max_position_embeddings=128, tie_word_embeddings=False, initializer_range=0.2)
SEQUENCES = [[5, 44, 31, 7, 60, 12, 12, 3, 29, 51, 18], [9, 2, 33], [40, 41, 5, 17, 26, 8, 55]]


def affine(w, bits, group, symmetric, g_idx=None):
    """Scales in float16 and zero points [out, groups] of the largest and smallest value of each group."""
    g_idx = torch.arange(w.shape[1]) // group if g_idx is None else g_idx
    groups, top = int(g_idx.max()) + 1, 2**bits - 1
    low = torch.stack([w[:, g_idx == g].amin(1) for g in range(groups)], 1).clamp(max=0)
    high = torch.stack([w[:, g_idx == g].amax(1) for g in range(groups)], 1).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / top).clamp(min=1e-4).half().float()
    zero = torch.full_like(scale, 2**(bits - 1)) if symmetric else (-low / scale).round().clamp(0, top)
    return scale, zero


class Gptq:
    """Modules that gptqmodel packs; `settings(name)`: bits, group, symmetric, whether inputs have a g_idx out of order."""

    def __init__(self, settings, v1, keep_g_idx=True, **config):
        self.settings, self.v1, self.keep_g_idx = settings, v1, keep_g_idx
        self.config = dict(quant_method="gptq", checkpoint_format="gptq" if v1 else "gptq_v2", pack_dtype="int32", **config)

    def __call__(self, name, w):
        from gptqmodel.nn_modules.qlinear import PackableQuantLinear
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module
        if self.settings(name) is None:
            return None
        bits, group, symmetric, ordered = self.settings(name)
        size = group if group > 0 else w.shape[1]
        g_idx = (torch.arange(w.shape[1]) // size).int()
        if ordered:
            g_idx = g_idx[torch.randperm(w.shape[1])]
        w[:3] = w[:3].abs()  # zero points 0
        scale, zero = affine(w, bits, size, symmetric, g_idx)
        module = TorchLinear(bits=bits, group_size=group, sym=symmetric, desc_act=ordered, in_features=w.shape[1],
                             out_features=w.shape[0], bias=False, pack_dtype=torch.int32)
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
        linear.weight.data = w
        module.pack_original(linear, scale, zero, g_idx)
        if self.v1:
            convert_gptq_v2_to_v1_format_module(module, quantize_config=type("C", (), dict(bits=bits, pack_dtype=torch.int32)))
        tensors = {k: getattr(module, k).clone() for k in ("qweight", "qzeros", "scales", "g_idx")}
        if not self.keep_g_idx:
            del tensors["g_idx"]
        if self.v1:
            convert_gptq_v1_to_v2_format_module(module, bits=bits, pack_dtype=torch.int32)
        module.scales = module.scales.float()
        return tensors, PackableQuantLinear.dequantize_weight(module).t()


class Awq:
    config = dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm", modules_to_not_convert=["o_proj"])

    def __call__(self, name, w):
        from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear
        from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
        if name.endswith(("o_proj", "lm_head")):
            return None
        scale, zero = affine(w, 4, 32, False)
        module = AwqTorchLinear(bits=4, group_size=32, sym=False, desc_act=False, in_features=w.shape[1], out_features=w.shape[0],
                                bias=False, register_buffers=True)
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
        linear.weight.data = w
        module.pack(linear, scale, zero)
        tensors = {k: getattr(module, k).clone() for k in ("qweight", "qzeros", "scales")}
        tensors["scales"] = tensors["scales"].half()
        return tensors, dequantize_gemm(tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, 32).t()


class Compressed:
    """`schemes`: of the modules whose name ends so, what compressed-tensors calls weights, and its format."""

    def __init__(self, form, schemes, scale_dtype=torch.bfloat16, **config):
        self.schemes, self.scale_dtype = schemes, scale_dtype
        groups = {f"group_{i}": dict(targets=[f"re:.*{end}$" for end in ends], weights=weights, format=form, **config)
                  for i, (ends, weights) in enumerate(schemes)}
        self.config = dict(quant_method="compressed-tensors", format=form, quantization_status="compressed", ignore=["lm_head"],
                           kv_cache_scheme=None, config_groups=groups)
        self.form = form

    def __call__(self, name, w):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationScheme
        found = [weights for ends, weights in self.schemes if name.endswith(ends)]
        if not found:
            return None
        weights = {k: v for k, v in found[0].items() if k != "actorder"}
        scheme = QuantizationScheme(targets=["Linear"], weights=weights, format=self.form)
        g_idx = None
        if found[0].get("actorder") == "group":
            g_idx = (torch.arange(w.shape[1]) // weights["group_size"]).int()[torch.randperm(w.shape[1])]
        scale, zero = self.grid(w, scheme.weights, g_idx)
        scale = scale.to(self.scale_dtype)
        compressor = BaseCompressor.get_value_from_registry(self.form)
        sort = slice(None) if g_idx is None else torch.argsort(g_idx.long(), stable=True)
        state = dict(weight=w[:, sort].contiguous(), weight_scale=scale.float())
        if not scheme.weights.symmetric:
            state["weight_zero_point"] = zero
        tensors = compressor.compress(state, scheme)
        values = compressor.decompress(dict(tensors), scheme)["weight"].float()
        tensors["weight_scale"] = scale
        if g_idx is not None:  # codes stay in the order of the inputs
            from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
            back = torch.argsort(sort)
            codes = unpack_from_int32(tensors["weight_packed"], weights["num_bits"], w.shape)[:, back]
            tensors["weight_packed"] = pack_to_int32(codes.contiguous(), weights["num_bits"])
            tensors["weight_g_idx"], values = g_idx, values[:, back]
        if weights.get("strategy") == "tensor" and self.form != "pack-quantized":
            tensors["input_scale"] = torch.tensor([0.5])  # of activations: not applied
        return tensors, values

    @staticmethod
    def grid(w, args, g_idx):
        rows, width = w.shape
        if args.strategy == "block":
            b = args.block_structure
            padded = torch.zeros(-(-rows // b[0]) * b[0], -(-width // b[1]) * b[1])
            padded[:rows, :width] = w
            parts = padded.reshape(padded.shape[0] // b[0], b[0], padded.shape[1] // b[1], b[1]).transpose(1, 2).flatten(2)
        elif args.strategy == "group":
            ordered = w if g_idx is None else w[:, torch.argsort(g_idx.long(), stable=True)]
            parts = ordered.reshape(rows, -1, args.group_size)
        else:
            parts = w.reshape(1, 1, -1) if args.strategy == "tensor" else w.reshape(rows, 1, -1)
        low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
        if args.type == "float":
            scale, zero = torch.maximum(high, -low) / 448, torch.zeros_like(low)
        elif args.symmetric:
            scale, zero = torch.maximum(high, -low) / (2**(args.num_bits - 1) - 0.5), torch.zeros_like(low)
        else:
            scale = (high - low) / (2**args.num_bits - 1)
            zero = (-low / scale).round() - 2**(args.num_bits - 1)
        if args.strategy == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        # As it is stored, so that codes fit it.
        return scale.bfloat16().float(), zero.clamp(-128, 127).to(torch.int8)


class Fp8:
    config = dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[32, 32], modules_to_not_convert=["lm_head"])

    def __call__(self, name, w):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        if name == "lm_head":
            return None
        rows, width = w.shape
        end = name.split(".")[-1]
        if end in ("q_proj", "up_proj"):
            scale = spread = w.abs().max() / 448
        elif end == "k_proj":
            scale = spread = w.abs().amax(1, keepdim=True) / 448
        else:
            scale = w.reshape(rows // 32, 32, width // 32, 32).abs().amax((1, 3)) / 448
            spread = scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
        blocks = scale.numel() not in (1, rows)
        codes = (w / spread).to(torch.float8_e4m3fn)
        tensors = {"weight": codes, "weight_scale_inv" if blocks else "weight_scale": scale}
        if not blocks:
            tensors["input_scale"] = torch.tensor(0.25)  # of activations: not applied
        grid = scale if scale.dim() else scale.reshape(1, 1)
        return tensors, Fp8Dequantize(None)._dequantize_one(codes, grid, torch.float32)


class BitsAndBytes:
    def __init__(self, int8):
        self.int8 = int8
        self.config = dict(quant_method="bitsandbytes", load_in_8bit=int8, load_in_4bit=not int8, bnb_4bit_quant_type="fp4",
                           llm_int8_skip_modules=["lm_head"], llm_int8_threshold=6.0)

    def __call__(self, name, w):
        import bitsandbytes.functional as bnb
        if name == "lm_head":
            return None
        if self.int8:
            codes, scb, _ = bnb.int8_vectorwise_quant(w.half())
            tensors = {"weight": codes, "SCB": scb, "weight_format": torch.tensor(0, dtype=torch.uint8)}
            return tensors, bnb.int8_vectorwise_dequant(codes, scb)
        packed, state = bnb.quantize_4bit(w, quant_type="fp4", compress_statistics="self_attn" in name)
        tensors = {"weight": packed, **{f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}}
        return tensors, bnb.dequantize_4bit(packed, state).float()


def logp_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    logp = []
    with torch.no_grad():
        for ids in SEQUENCES:
            out = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            logp.append(out[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0])
    return torch.cat(logp)


def write(name, model, quantize, biases=()):
    """`biases`: modules beside which an all-zero bias is written, as AutoGPTQ does, that the model does not have."""
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        tensors, values, hashes = {}, {}, {}
        for key, x in load_file(Path(plain) / "model.safetensors").items():
            x = x.bfloat16().float()
            module, _, part = key.rpartition(".")
            linear = x.dim() == 2 and part == "weight" and "embed" not in key and not module.endswith(".gate")
            done = quantize(module, x.clone()) if linear else None
            if done is None:
                tensors[key], values[key] = x.bfloat16(), x
                continue
            for suffix, y in done[0].items():
                tensors[f"{module}.{suffix}"] = y.contiguous()
            values[key] = done[1].contiguous().float()
            hashes[key] = hashlib.sha256(values[key].numpy().tobytes()).hexdigest()
            if module.split(".")[-1] in biases:
                tensors[f"{module}.bias"] = torch.zeros(x.shape[0], dtype=torch.float16)
        save_file(values, Path(plain) / "model.safetensors", metadata={"format": "pt"})
        save_file({"logp": logp_of(plain)}, target / "expected.safetensors")
        config = json.loads((Path(plain) / "config.json").read_text())
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config.pop("transformers_version")
    config["quantization_config"] = quantize.config
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (target / "expected.json").write_text(json.dumps(dict(sequences=SEQUENCES, sha256=hashes), indent=1) + "\n")
    size = sum(f.stat().st_size for f in target.iterdir())
    print("wrote", target.name, len(hashes), "matrices", size, "bytes")


def made(kind, layers, **changes):
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, "num_hidden_layers": layers, "pad_token_id": None, **changes})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
    for x in model.parameters():
        if x.dim() == 1:
            x.data += 0.2 * torch.randn_like(x)
    return model


def dynamic(name):
    per_layer = dict(q_proj=(2, 32, False, False), k_proj=(3, 32, False, True), v_proj=(8, -1, False, False), o_proj=(4, -1, True, False),
                     up_proj=(8, 32, False, True), down_proj=(4, 32, False, True))
    return per_layer.get(name.split(".")[-1])


def weights(**args):
    return dict(type="int", symmetric=True, dynamic=False, **args)


MODELS = dict(
    gptq=lambda: (made("Llama", 1), Gptq(lambda n: (4, 32, False, True), True, bits=4, group_size=32, desc_act=True, sym=False,
                                         lm_head=True), ("o_proj", "down_proj")),
    gptq_dynamic=lambda: (made("Qwen2", 1), Gptq(dynamic, False, bits=4, group_size=32, desc_act=True, sym=False, dynamic={
        r"-:.*gate_proj": {}, r"+:.*q_proj": dict(bits=2), r"+:.*k_proj": dict(bits=3), r"+:.*v_proj": dict(bits=8, group_size=-1),
        r"+:.*o_proj": dict(group_size=-1), r"+:.*up_proj": dict(bits=8)})),
    gptq_moe=lambda: (made("Mixtral", 1, num_local_experts=5, num_experts_per_tok=2, intermediate_size=32),
                      Gptq(lambda n: None if n == "lm_head" else (4, 32, True, False), True, keep_g_idx=False, bits=4,
                           group_size=32, desc_act=False, sym=True)),
    gptq_phi3=lambda: (made("Phi3", 1), Gptq(lambda n: None if n == "lm_head" else (8, 32, True, True), True, bits=8, group_size=32,
                                             desc_act=True, sym=True)),
    awq=lambda: (made("Qwen2", 1), Awq()),
    compressed_pack=lambda: (made("Qwen3", 1), Compressed("pack-quantized", [
        (("q_proj", ), weights(num_bits=4, strategy="group", group_size=32) | dict(symmetric=False)),
        (("k_proj", ), weights(num_bits=4, strategy="channel") | dict(symmetric=False)),
        (("v_proj", ), weights(num_bits=8, strategy="group", group_size=16) | dict(symmetric=False)),
        (("o_proj", ), weights(num_bits=4, strategy="tensor")),
        (("gate_proj", ), weights(num_bits=8, strategy="channel")),
        (("up_proj", ), weights(num_bits=4, strategy="group", group_size=32, actorder="group")),
        (("down_proj", ), weights(num_bits=4, strategy="group", group_size=32, actorder="weight"))])),
    compressed_int=lambda: (made("Llama", 1), Compressed("int-quantized", [
        (("q_proj", "up_proj"), weights(num_bits=8, strategy="channel")),
        (("k_proj", "gate_proj"), weights(num_bits=8, strategy="channel") | dict(symmetric=False)),
        (("v_proj", "down_proj"), weights(num_bits=8, strategy="tensor"))],
        input_activations=dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True))),
    compressed_float=lambda: (made("Qwen3", 1), Compressed("float-quantized", [
        (("q_proj", "up_proj"), weights(num_bits=8, strategy="channel") | dict(type="float")),
        (("k_proj", "gate_proj"), weights(num_bits=8, strategy="tensor") | dict(type="float")),
        (("v_proj", "down_proj"), weights(num_bits=8, strategy="block", block_structure=[24, 40]) | dict(type="float"))],
        input_activations=dict(num_bits=8, type="float", symmetric=True, strategy="token", dynamic=True))),
    fp8=lambda: (made("Qwen3", 1), Fp8()),
    # bitsandbytes' CPU kernel reads blocks that cross the ends of rows wrongly.
    bnb_fp4=lambda: (made("Qwen3", 1, intermediate_size=128), BitsAndBytes(False)),
    bnb_int8=lambda: (made("Llama", 1), BitsAndBytes(True)),
)


def main():
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(11)
        write(name, *MODELS[name]())


if __name__ == "__main__":
    main()
