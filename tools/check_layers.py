#!/usr/bin/env python3
"""Holds the direction of the layers: a folder of temper/ may include only itself and lower layers, those that come
before it in ORDER.

LibTorch stays out of the folders in NO_TORCH and out of the kernels in ops/cpu; c10d stays in dist. Prints every
violation as FILE:LINE; exit status 1 where there is one.
"""
import pathlib
import re
import sys

ORDER = ["base", "text", "metrics", "process", "rewards", "env", "io", "data", "grammar", "ops", "dist", "nn", "models", "parallel", "generate", "serve", "train", "tinker", "roles", "preference", "rl", "distill", "plan", "cli"]
NO_TORCH = {"base", "text", "metrics", "process", "rewards", "env", "io", "data", "grammar"}

root = pathlib.Path(__file__).resolve().parent.parent
problems = []
for path in sorted((root / "temper").rglob("*")):
    if path.suffix not in {".h", ".cpp", ".cu"}:
        continue
    folder = path.relative_to(root / "temper").parts[0]
    if folder not in ORDER:
        problems.append(f"{path}: folder {folder} is not in the list of layers")
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.relative_to(root)}:{number}"
        match = re.match(r'#include "temper/(\w+)/', line)
        if match and match[1] not in ORDER:
            problems.append(f"{place}: {match[1]} is not in the list of layers")
        elif match and ORDER.index(match[1]) > ORDER.index(folder):
            problems.append(f"{place}: {folder} includes {match[1]}, a higher layer")
        if re.match(r'#include "temper/ops/cpu/', line) and folder != "ops" and path.name != "doctor.cpp":
            problems.append(f"{place}: kernels are called by temper/ops alone")
        torch = re.match(r"#include <(ATen|torch|c10)/", line)
        kernels = "ops/cpu" in str(path)
        if torch and (folder in NO_TORCH or kernels):
            problems.append(f"{place}: LibTorch is not included here")
        if re.match(r"#include <torch/csrc/distributed", line) and folder != "dist":
            problems.append(f"{place}: c10d belongs to temper/dist")
print("\n".join(problems))
sys.exit(1 if problems else 0)
