#!/usr/bin/env python3
"""Training on pictures by Temper and by TRL, in one run: a Qwen3-VL of random weights, SFT and one kind of GRPO step.

usage: bench/images.py [--python PATH] [--rows FILE] [--steps N] [--size PIXELS] [--only sft|grpo]

SFT: 8 rows a step, a picture and a question of GSM8K with its answer; tower and language model train. GRPO: 4 prompts with
a picture each x 8 samples x 64 tokens, beta 0; the tower is frozen, as it is by default in Temper; in TRL its parameters
are made constants. Float32 on both sides. Tokens are the rows' own with those of pictures, padding is not counted; rates
leave the first two steps (SFT) and the first (GRPO) out; memory is the peak of the process. The peer's environment needs
pillow and torchvision. Machines that do other work at the same time give numbers that mean nothing.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import zlib

import peers

BATCH, PROMPTS, SAMPLES, SAMPLED = 8, 4, 8, 64

# The tower: 6 blocks of width 256, features of two of them added in the language model, which is the benchmark's.
MODEL = r"""
import json, sys
bench, out = sys.argv[1:]
import torch
from transformers import AutoTokenizer, Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers import Qwen3VLVideoProcessor
tokenizer = AutoTokenizer.from_pretrained(bench)
tokenizer.add_special_tokens({"additional_special_tokens": ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]})
start, end, image, video = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
tokenizer.image_token, tokenizer.video_token = "<|image_pad|>", "<|video_pad|>"
text = {k: v for k, v in json.load(open(bench + "/config.json")).items() if k not in ("architectures", "model_type", "transformers_version", "layer_types")}
text |= {"vocab_size": len(tokenizer), "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 8, 8], "mrope_interleaved": True}}
vision = {"depth": 6, "hidden_size": 256, "intermediate_size": 1024, "num_heads": 4, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
          "out_hidden_size": text["hidden_size"], "num_position_embeddings": 256, "deepstack_visual_indexes": [2, 4]}
config = Qwen3VLConfig(text_config=text, vision_config=vision, image_token_id=image, video_token_id=video, vision_start_token_id=start,
                       vision_end_token_id=end, tie_word_embeddings=True)
torch.manual_seed(1)
Qwen3VLForConditionalGeneration(config).save_pretrained(out)
template = ("{%- for m in messages %}<|im_start|>{{ m.role }}\n{%- if m.content is string %}{{ m.content }}{%- else %}{%- for p in m.content %}"
            "{%- if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{%- else %}{{ p.text }}{%- endif %}{%- endfor %}{%- endif %}"
            "<|im_end|>\n{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}")
processor = Qwen3VLProcessor(Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                                                   size={"shortest_edge": 1024, "longest_edge": 1 << 20}),
                             tokenizer, Qwen3VLVideoProcessor(), chat_template=template)
processor.save_pretrained(out)
print("RESULT {}")
"""

PEER = peers.PRELUDE + r"""
model, rows, steps, out, verb = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
batch, prompts, samples, sampled = map(int, sys.argv[6:])
import os, torch
from PIL import Image
from datasets import Dataset
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
folder = os.path.dirname(rows)
data = [json.loads(line) for line in open(rows)]
processor = AutoProcessor.from_pretrained(model)
policy = Qwen3VLForConditionalGeneration.from_pretrained(model, dtype="float32")
picture = lambda row: Image.open(os.path.join(folder, row["images"][0])).convert("RGB")
common = dict(output_dir=out, max_steps=steps, use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none",
              logging_steps=1, disable_tqdm=True)
times = step_ends()
if verb == "sft":
    count = [len(processor(text=[processor.apply_chat_template(row["messages"])], images=[[picture(row)]])["input_ids"][0]) for row in data[: batch * steps]]
    count = [sum(count[i:i + batch]) for i in range(0, len(count), batch)]
    in_order(SFTTrainer)
    turn = lambda m: {"role": m["role"], "content": m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]}
    rows = [{"images": [picture(r)], "prompt": [turn(m) for m in r["messages"][:-1]], "completion": [turn(r["messages"][-1])]} for r in data[: batch * steps]]
    trainer = SFTTrainer(policy, processing_class=processor, callbacks=[times], train_dataset=Dataset.from_list(rows),
                         args=SFTConfig(per_device_train_batch_size=batch, max_length=None, learning_rate=1e-3, **common))
    trainer.train()
    result(**rates(times.ends, count), losses={"loss": [row["loss"] for row in trainer.state.log_history if "loss" in row]})
else:
    policy.model.visual.requires_grad_(False)
    rows = [{"image": picture(r), "prompt": r["messages"]} for r in data[: prompts * steps]]
    # A token that stands for a picture and is sampled, as by these random weights, ends TRL's run.
    pictures = processor.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
    def reward(completions, **kwargs): return [float(len(set(c[0]["content"])) % 7) for c in completions]
    trainer = GRPOTrainer(policy, reward_funcs=reward, processing_class=processor, callbacks=[times], train_dataset=Dataset.from_list(rows),
                          args=GRPOConfig(per_device_train_batch_size=samples, gradient_accumulation_steps=prompts, num_generations=samples,
                                          max_completion_length=sampled, learning_rate=1e-5, beta=0.0,
                                          generation_kwargs={"min_new_tokens": sampled, "suppress_tokens": pictures}, **common))
    trainer.train()
    ends = [wall for wall, _ in times.ends]
    result(seconds=(ends[-1] - ends[0]) / (len(ends) - 1))
"""


def picture(path, side, rng):
    """A PNG of rectangles."""
    pixels = [bytearray(b"\xff" * 3 * side) for _ in range(side)]
    for _ in range(6):
        left, top, width, height = (rng.randrange(side // 2) for _ in range(4))
        color = bytes(rng.randrange(256) for _ in range(3))
        for y in range(top, top + height):
            pixels[y][3 * left:3 * (left + width)] = color * width
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in pixels))) + chunk(b"IEND", b""))


def make_rows(folder, source, number, side, answers):
    """Prompts have one question: TRL 1.16 with transformers 5.24 fails where prompts with pictures differ in length and are padded."""
    rng, first = random.Random(1), None
    path = folder / ("sft.jsonl" if answers else "prompts.jsonl")
    with open(path, "w") as file:
        for i, line in zip(range(number), open(source)):
            row = json.loads(line)
            first = first or row
            picture(folder / f"{i}.png", side, rng)
            messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": (row if answers else first)["question"]}]}]
            if answers:
                messages.append({"role": "assistant", "content": row["answer"]})
            file.write(json.dumps({"messages": messages, "images": [f"{i}.png"]}) + "\n")
    return path


def compare_sft(args, model, folder):
    rows = make_rows(folder, args.rows, BATCH * args.steps, args.size, True)
    ours = peers.temper("sft", folder / "temper-sft", f"model.path={model}", f"data.train={rows}", f"train.batch_size={BATCH}", "model.vision=train",
                        f"train.max_steps={args.steps}", "optimizer.learning_rate=1e-3", "optimizer.schedule=linear", "data.train_on=assistant",
                        "data.max_length=4096")
    peer = peers.run_python(args.python, PEER, model, rows, args.steps, folder / "trl-sft", "sft", BATCH, PROMPTS, SAMPLES, SAMPLED)
    peers.report("SFT with pictures, all weights", "TRL", ours, peer)


def compare_grpo(args, model, folder):
    rows = make_rows(folder, args.rows, PROMPTS * args.steps, args.size, False)
    out = folder / "temper-grpo"
    subprocess.check_call([peers.TEMPER, "grpo", f"output_dir={out}", f"model.path={model}", f"data.train={rows}", f"train.max_steps={args.steps}",
                           "rl.beta=0", f"rl.prompts_per_rollout={PROMPTS}", f"rl.group_size={SAMPLES}", f"rollout.max_new_tokens={SAMPLED}",
                           "rollout.ignore_eos=true", "rewards=[{name: repetition}]", "optimizer.learning_rate=1e-5", "metrics.sinks=[jsonl]"],
                          stdout=subprocess.DEVNULL)
    steps = [json.loads(line) for line in open(out / "metrics.jsonl")]
    seconds = sum(row["step_seconds"] for row in steps[1:]) / (len(steps) - 1)
    memory = steps[-1]["peak_memory_bytes"]
    peer = peers.run_python(args.python, PEER, model, rows, args.steps, folder / "trl-grpo", "grpo", BATCH, PROMPTS, SAMPLES, SAMPLED)
    print(f"GRPO with pictures\n  Temper {seconds:6.2f} s a step  {memory / 1e9:.2f} GB  {steps[-1]['image_tokens']} tokens of pictures in the last")
    if peer:
        print(f"  TRL    {peer['seconds']:6.2f} s a step  {peer['peak_memory_bytes'] / 1e9:.2f} GB\n"
              f"  speed {peer['seconds'] / seconds:.1f} times, memory {100 * memory / peer['peak_memory_bytes']:.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(peers.VENV / "bin/python"), help="of an environment with the peers; it makes the model too")
    parser.add_argument("--rows", default=str(peers.GSM8K))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--size", type=int, default=256, help="width and height of the pictures")
    parser.add_argument("--only", choices=["sft", "grpo"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "model"
        if peers.run_python(args.python, MODEL, peers.BENCH, model) is None:
            return
        if args.only != "grpo":
            compare_sft(args, model, folder)
        if args.only != "sft":
            compare_grpo(args, model, folder)


if __name__ == "__main__":
    main()
