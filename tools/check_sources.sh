#!/usr/bin/env bash
# Compiles every source by itself, without code (-fsyntax-only): a unity build and its precompiled header both hide a
# missing include. Usage: tools/check_sources.sh [PATTERN | --recent]: those of temper/ whose path matches the regular
# expression, those that the last 40 commits changed, or all. Headers that take longer than most sources are precompiled
# for the sources that include them, by themselves or by a header.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-syntax
cmake -S . -B "$build" -G Ninja -DTORCH_ROOT="$(tools/setup.sh --torch-root)" -DTEMPER_UNITY=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
python3 - "$build" "${1:-}" <<'PY'
import concurrent.futures, functools, json, os, re, shlex, subprocess, sys
# What takes longer to read than most sources.
HEAVY = {"ATen/ATen.h", "nlohmann/json.hpp"}
LEAST_SOURCES = 4  # that a precompiled header is made for
build, pattern = os.path.abspath(sys.argv[1]), sys.argv[2]
commands = [c for c in json.load(open(f"{build}/compile_commands.json")) if os.path.relpath(c["file"]).startswith("temper/")]
if pattern == "--recent":
    log = subprocess.run(["git", "log", "-40", "--format=", "--name-only"], capture_output=True, text=True, check=True).stdout
    # A header that lacks an include is found in the source of its name.
    recent = {os.path.splitext(name)[0] for name in log.splitlines()}
    commands = [c for c in commands if os.path.splitext(os.path.relpath(c["file"]))[0] in recent]
    if not commands:
        sys.exit(print("check_sources: no source changed lately"))
else:
    commands = [c for c in commands if re.search(pattern, c["file"])]

@functools.lru_cache(None)
def heavy_headers(path):
    found = set()
    for line in open(path, errors="replace"):
        if match := re.match(r"#include <([^>]+)>", line):
            found |= {match[1]} & HEAVY
        elif (match := re.match(r'#include "(temper/[^"]+)"', line)) and os.path.exists(match[1]):
            found |= heavy_headers(match[1])
    return frozenset(found)

def arguments_of(command):
    arguments = shlex.split(command["command"])
    at = arguments.index("-o")
    return arguments[:at], arguments[at + 2:]

def run(arguments, command):
    return subprocess.run(arguments, cwd=command["directory"], capture_output=True, text=True)

# The header that holds those of a source, precompiled, by what they are and by the options: GCC takes no other.
precompiled = {}
groups = {}
for command in commands:
    options, _ = arguments_of(command)
    headers = heavy_headers(os.path.relpath(command["file"]))
    groups.setdefault((headers, tuple(options)), []).append(command)
for (headers, options), sources in groups.items():
    if not headers or len(sources) < LEAST_SOURCES:
        continue
    header = f"{build}/heavy{len(precompiled)}.h"
    open(header, "w").write("".join(f"#include <{name}>\n" for name in sorted(headers)))
    made = run([*options, "-x", "c++-header", header, "-o", header + ".gch"], sources[0])
    if made.returncode:
        sys.exit(made.stderr)
    precompiled[headers, options] = header

def check(command):
    options, source = arguments_of(command)
    header = precompiled.get((heavy_headers(os.path.relpath(command["file"])), tuple(options)))
    if header:
        options += ["-include", header]
    done = run([*options, "-fsyntax-only", *source], command)
    return command["file"], done.returncode, done.stderr

failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for file, status, output in pool.map(check, commands):
        if status:
            failed += 1
            print(f"{file} does not compile by itself:\n{output}", flush=True)
print(f"check_sources: {len(commands)} sources, {failed} failed")
sys.exit(failed > 0 or not commands)
PY
