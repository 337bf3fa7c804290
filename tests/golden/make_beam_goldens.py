#!/usr/bin/env python3
"""Makes tests/golden/beams.json: what transformers' beam search finds with the models of tests/golden/models.

    python tests/golden/make_beam_goldens.py       (torch 2.13, transformers 5.23)

A case is a model, end tokens, options of `generate` by transformers' names, and of each prompt the completions (up to the end token, which is
part of them) and their scores, best first. Cases whose outcome hangs on less than 1e-4 are refused: no two programs would agree on them.
"""
import json
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
PROMPTS = [[3, 14, 15, 9, 26], [5], list(range(1, 40))]
GAP = 1e-4

CASES = [
    ("qwen3", [7], dict(num_beams=2, num_return_sequences=2, max_new_tokens=12)),
    ("qwen3", [7], dict(num_beams=4, num_return_sequences=4, max_new_tokens=20, sequence_bias=[[[7], 3.0]])),
    ("llama", [7, 11], dict(num_beams=3, num_return_sequences=2, max_new_tokens=24, length_penalty=0.0, sequence_bias=[[[7], 1.5], [[11], 1.0]])),
    ("qwen3", [7, 11], dict(num_beams=5, num_return_sequences=5, max_new_tokens=18, length_penalty=2.0, sequence_bias=[[[7], 2.0], [[11], 2.0]])),
    ("gemma2", [7], dict(num_beams=3, num_return_sequences=3, max_new_tokens=16, length_penalty=-0.5, sequence_bias=[[[7], 4.0]])),
    ("gemma2", [], dict(num_beams=3, num_return_sequences=3, max_new_tokens=9)),
    ("qwen2", [7], dict(num_beams=4, num_return_sequences=2, max_new_tokens=16, repetition_penalty=1.4, no_repeat_ngram_size=2, min_new_tokens=6,
                        sequence_bias=[[[7], 5.0], [[9], -4.0]])),
    ("llama", [7], dict(num_beams=8, num_return_sequences=8, max_new_tokens=1)),
]


def beams(model, ends, options, prompt):
    found = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False, early_stopping=False,
                           eos_token_id=ends or None, pad_token_id=0, return_dict_in_generate=True, output_scores=True,
                           **{k: v for k, v in options.items()})
    completions = []
    for row in found.sequences[:, len(prompt):].tolist():
        end = min((row.index(e) + 1 for e in ends if e in row), default=len(row))
        completions.append(row[:end])
    return completions, found.sequences_scores.tolist()


def main():
    torch.set_num_threads(1)
    cases = []
    for name, ends, options in CASES:
        model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / name, dtype=torch.float32, attn_implementation="eager").eval()
        model.generation_config = transformers.GenerationConfig()
        results = []
        for prompt in PROMPTS:
            completions, scores = beams(model, ends, options, prompt)
            # As many as there are beams, so that the gap behind the last that is returned counts, too.
            everything = beams(model, ends, {**options, "num_return_sequences": options["num_beams"]}, prompt)[1]
            gaps = [a - b for a, b in zip(everything, everything[1:])]
            assert min(gaps) > GAP, (name, options, gaps)
            assert len(set(map(tuple, completions))) == len(completions)
            results.append(dict(completions=completions, scores=scores))
        print(name, options, [[len(c) for c in r["completions"]] for r in results])
        cases.append(dict(model=name, ends=ends, options=options, results=results))
    text = json.dumps(dict(prompts=PROMPTS, cases=cases))
    (HERE / "beams.json").write_text(text.replace('{"model"', '\n{"model"') + "\n")


main()
