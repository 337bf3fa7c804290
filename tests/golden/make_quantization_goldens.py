#!/usr/bin/env python3
"""Makes tests/golden/quantization.json and tests/golden/models/qwen3_nf4, by bitsandbytes.

    python tests/golden/make_quantization_goldens.py       (torch 2.13, transformers 5.23, bitsandbytes 0.50)

quantization.json: matrices, each with its values, the NF4 codes (one a value), and the values read back, with the absmax in
float32 and with double quantization; "values": [] stands for (i * 2654435761 mod 2^32 >> 8) / 2^24 - 0.5 at index i.
qwen3_nf4: tests/golden/models/qwen3 with its blocks' linear layers in 4 bits as bitsandbytes writes them into safetensors
(double quantization in all but the last layer), and expected.safetensors: logp of every token of expected.json's sequences
after a sequence's first, by transformers in float32 on the values read back.
"""
import json
from pathlib import Path

import torch
import transformers
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def matrices():
    for rows, columns, scale in ((24, 64, 0.02), (7, 100, 1.0)):
        x = torch.randn(rows, columns) * scale
        x[1, :3] = torch.tensor([8.0, -8.0, 0.0]) * scale  # an outlier, and a block that is small beside it
        x[0, 0] = 0
        yield x, x.flatten().tolist()
    # More blocks than share one scale of the absmax; the values follow from their index.
    i = torch.arange(60 * 320, dtype=torch.int64)
    yield ((i * 2654435761 % 2**32) // 256).float().div(2**24).sub(0.5).reshape(60, 320), []


def main():
    torch.manual_seed(3)
    cases = []
    for x, values in matrices():
        packed, single = quantize_4bit(x, quant_type="nf4", compress_statistics=False)
        again, double = quantize_4bit(x, quant_type="nf4", compress_statistics=True)
        assert torch.equal(packed, again)
        codes = torch.stack([packed.flatten() >> 4, packed.flatten() & 15], 1).flatten()[:x.numel()]
        cases.append(dict(shape=list(x.shape), values=values, codes="".join(f"{c:x}" for c in codes.tolist()),
                          absmax=single.absmax.tolist(),
                          double_absmax=(double.state2.code[double.absmax.long()] * double.state2.absmax.repeat_interleave(256)[
                              :double.absmax.numel()] + double.offset).tolist()))
    (HERE / "quantization.json").write_text(json.dumps(dict(map=double.state2.code.tolist(), cases=cases)))

    source, target = HERE / "models" / "qwen3", HERE / "models" / "qwen3_nf4"
    target.mkdir(exist_ok=True)
    tensors, plain = {}, {}
    last = max(int(name.split(".")[2]) for name in load_file(source / "model.safetensors") if ".layers." in name)
    for name, x in load_file(source / "model.safetensors").items():
        plain[name] = x
        if name.split(".")[-2] not in LINEAR or name.endswith("bias"):
            tensors[name] = x
            continue
        packed, state = quantize_4bit(x, quant_type="nf4", compress_statistics=f".layers.{last}." not in name)
        tensors[name] = packed
        for key, value in state.as_dict(packed=True).items():
            tensors[f"{name}.{key}"] = value
        plain[name] = dequantize_4bit(packed, state)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="nf4",
                                         bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="float32")
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    expected = json.loads((source / "expected.json").read_text())
    (target / "expected.json").write_text(json.dumps(dict(sequences=expected["sequences"])) + "\n")
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(plain, strict=False)
    model.eval()
    logp = []
    with torch.no_grad():
        for ids in expected["sequences"]:
            out = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            logp.append(out[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0])
    save_file({"logp": torch.cat(logp)}, target / "expected.safetensors")
    print("wrote", target, len(tensors), "tensors")


if __name__ == "__main__":
    main()
