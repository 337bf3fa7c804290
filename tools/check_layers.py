#!/usr/bin/env python3
"""Holds the direction of the layers: a folder of temper/ may include only itself and lower layers, those that come
before it in ORDER.

LibTorch stays out of the folders in NO_TORCH and out of the kernels; the kernels' headers and namespace stay in ops;
c10d stays in dist; no folder has more than MOST_FILES files of its own; each layer has a README.md of at most three
lines. Prints every violation as FILE:LINE; exit status 1 where there is one.
"""
import pathlib
import re
import sys

ORDER = ["base", "text", "image", "metrics", "process", "http", "rewards", "env", "io", "data", "grammar", "vision", "ops", "dist", "nn", "models", "parallel", "generate", "serve", "train", "tinker", "workers", "preference", "rl", "distill", "check", "cli"]
NO_TORCH = {"base", "text", "image", "metrics", "process", "rewards", "http", "env", "io", "data", "grammar"}
MOST_FILES = 30
KERNELS = "temper/ops/native/kernels"
# The doctor names the instructions that the kernels are dispatched to.
CALLS_KERNELS = {"temper/cli/doctor.cpp"}

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
        outside = folder != "ops" and str(path.relative_to(root)) not in CALLS_KERNELS
        if outside and (f'#include "{KERNELS}' in line or re.search(r"\bkernels::", line.split("//")[0])):
            problems.append(f"{place}: kernels are called by temper/ops alone")
        torch = re.match(r"#include <(ATen|torch|c10)/", line)
        kernels = str(path.relative_to(root)).startswith(KERNELS)
        if torch and (folder in NO_TORCH or kernels):
            problems.append(f"{place}: LibTorch is not included here")
        if re.match(r"#include <torch/csrc/distributed", line) and folder != "dist":
            problems.append(f"{place}: c10d belongs to temper/dist")
for level in sorted(p for p in (root / "temper").rglob("*") if p.is_dir()):
    count = sum(1 for f in level.iterdir() if f.suffix in {".h", ".cpp", ".cu"})
    if count > MOST_FILES:
        problems.append(f"{level.relative_to(root)}: {count} files, expected at most {MOST_FILES}; split the folder")
for folder in ORDER:
    readme = root / "temper" / folder / "README.md"
    lines = readme.read_text().splitlines() if readme.exists() else []
    if not 1 <= len(lines) <= 3:
        problems.append(f"{readme.relative_to(root)}: {len(lines)} lines, expected one to three that say what is where")
print("\n".join(problems))
sys.exit(1 if problems else 0)
