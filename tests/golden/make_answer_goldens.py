#!/usr/bin/env python3
"""What the graders of the field say about answers of mathematics and of GSM8K. Writes tests/golden/answers.json.

  math   pairs of a truth and an answer, each in \\boxed{}: `hendrycks` is is_equiv of the MATH dataset (Hendrycks et al., arXiv
         2103.03874) as EleutherAI's harness has it, `math_verify` is Hugging Face's grader (numeric and symbolic, with sympy).
         `expected` is math_verify's verdict, unless OWN names another one and its reason, which then stands beside it.
  gsm8k  completions: `strict` and `flexible` are the harness's two filters for GSM8K with its exact_match. `expected` is 1 where
         one of them is, unless OWN_GSM8K says otherwise.

Needs math-verify 0.9 and, for the harness, a directory with the unpacked wheel of lm-eval 0.4 (nothing of it is imported but the
file of the grader).
Usage: make_answer_goldens.py DIRECTORY_OF_LM_EVAL tests/golden/answers.json
"""
import json
import pathlib
import re
import sys
import types

from answer_pairs import GSM8K, MATH, OWN, OWN_GSM8K
from math_verify import parse, verify


def hendrycks(root):
    sys.modules["datasets"] = types.SimpleNamespace(Dataset=None)
    scope = {}
    exec(compile((root / "tasks/hendrycks_math/utils.py").read_text(), "utils.py", "exec"), scope)
    return scope["is_equiv"]


def boxed(text):
    return parse("\\boxed{" + text + "}")


def exact_match(prediction, truth):
    """exact_match of the harness's gsm8k.yaml."""
    for pattern in [",", r"\$", r"(?s).*#### ", r"\.$"]:
        prediction, truth = re.sub(pattern, "", prediction), re.sub(pattern, "", truth)
    return int(prediction.lower() == truth.lower())


def filtered(pattern, select, text):
    found = re.findall(pattern, text)
    if not found:
        return "[invalid]"
    match = found[select]
    if isinstance(match, tuple):
        match = next((m for m in match if m), "[invalid]")
    return match.strip()


def math_rows(is_equiv):
    for truth, answer in MATH:
        row = {"truth": truth, "answer": answer, "hendrycks": int(is_equiv(truth, answer)),
               "math_verify": int(verify(boxed(truth), boxed(answer)))}
        row["expected"], reason = OWN.get((truth, answer), (row["math_verify"], None))
        if reason:
            assert row["expected"] != row["math_verify"], (truth, answer)
            row["reason"] = reason
        yield row


def gsm8k_rows():
    for truth, completion in GSM8K:
        row = {"truth": truth, "completion": completion,
               "strict": exact_match(filtered(r"#### (\-?[0-9\.\,]+)", 0, completion), truth),
               "flexible": exact_match(filtered(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1, completion), truth)}
        either = int(row["strict"] or row["flexible"])
        row["expected"], reason = OWN_GSM8K.get((truth, completion), (either, None))
        if reason:
            assert row["expected"] != either, (truth, completion)
            row["reason"] = reason
        yield row


def main():
    is_equiv = hendrycks(pathlib.Path(sys.argv[1]) / "lm_eval")
    rows = {"math": list(math_rows(is_equiv)), "gsm8k": list(gsm8k_rows())}
    lines = [f'"{name}":[\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in part) + "\n]" for name, part in rows.items()]
    pathlib.Path(sys.argv[2]).write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
