#!/usr/bin/env python3
"""Draws one metric of several runs into one picture (SVG), and prints its values side by side.

usage: tools/plot_runs.py [--metric loss] [--output curves.svg] NAME=RUN_DIRECTORY [NAME=RUN_DIRECTORY ...]
"""
import argparse
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 420, 70, 40, 20
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")


def points_of(directory, metric):
    points = []
    with open(pathlib.Path(directory) / "metrics.jsonl") as f:
        for line in f:
            row = json.loads(line)
            if isinstance(row.get(metric), (int, float)) and math.isfinite(row[metric]):
                points.append((row["step"], row[metric]))
    if not points:
        sys.exit(f"{directory}/metrics.jsonl has no `{metric}`")
    return points


def ticks(low, high):
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= min((m for m in (1, 2, 5, 10)), key=lambda m: abs((high - low) / (m * step) - 5))
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def picture(runs, metric):
    xs = [x for points in runs.values() for x, _ in points]
    ys = [y for points in runs.values() for _, y in points]
    low, high = min(ys), max(ys)
    if low == high:
        low, high = low - 1, high + 1
    left, right = min(xs), max(max(xs), min(xs) + 1)
    px = lambda x: LEFT + (x - left) / (right - left) * (WIDTH - LEFT - 20)
    py = lambda y: TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for y in ticks(low, high):
        out.append(f'<path d="M{LEFT} {py(y):.1f}H{WIDTH - 20}" stroke="#ddd"/><text x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x in ticks(left, right):
        out.append(f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.0f}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text><text x="{LEFT}" y="14">{metric}</text>')
    for i, (name, points) in enumerate(runs.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<text x="{WIDTH - 24}" y="{TOP + 16 * (i + 1)}" text-anchor="end" fill="{colour}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metric", default="loss")
    parser.add_argument("--output", default="curves.svg")
    parser.add_argument("runs", nargs="+", metavar="NAME=DIRECTORY")
    args = parser.parse_args()
    runs = {}
    for run in args.runs:
        name, equals, directory = run.partition("=")
        if not equals:
            parser.error(f"found {run}, expected NAME=DIRECTORY")
        runs[name] = points_of(directory, args.metric)
    pathlib.Path(args.output).write_text(picture(runs, args.metric))
    steps = sorted({x for points in runs.values() for x, _ in points})
    shown = steps if len(steps) <= 12 else [steps[round(i * (len(steps) - 1) / 11)] for i in range(12)]
    print("step".ljust(24) + "".join(f"{s:>10}" for s in shown))
    for name, points in runs.items():
        values = dict(points)
        print(name.ljust(24) + "".join(f"{values[s]:>10.4f}" if s in values else " " * 10 for s in shown))
    print(args.output)


if __name__ == "__main__":
    main()
