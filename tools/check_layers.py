#!/usr/bin/env python3
"""Holds the direction of the layers: a folder of temper/ may include only itself and folders above it in this list."""
import pathlib
import re
import sys

ORDER = ["base", "text", "metrics", "rewards", "io", "data", "ops", "dist", "nn", "models", "parallel", "generate", "train", "rl", "cli"]
NO_TORCH = {"base", "text", "metrics", "rewards", "io", "data"}

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
        if match and ORDER.index(match[1]) > ORDER.index(folder):
            problems.append(f"{place}: {folder} includes {match[1]}, which is below it")
        torch = re.match(r"#include <(ATen|torch|c10)/", line)
        kernels = "ops/cpu" in str(path)
        if torch and (folder in NO_TORCH or kernels):
            problems.append(f"{place}: LibTorch is not included here")
        if re.match(r"#include <torch/csrc/distributed", line) and folder != "dist":
            problems.append(f"{place}: c10d belongs to temper/dist")
print("\n".join(problems))
sys.exit(1 if problems else 0)
