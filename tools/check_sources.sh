#!/usr/bin/env bash
# Compiles every source by itself, without code (-fsyntax-only): a unity build and its precompiled header both hide a
# missing include. Usage: tools/check_sources.sh [PATTERN]: those of temper/ whose path matches the regular expression,
# or all. ATen's header, which takes longer than all else, is precompiled for the sources that include it, by themselves
# or by a header.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-syntax
cmake -S . -B "$build" -G Ninja -DTORCH_ROOT="$(tools/setup.sh --torch-root)" -DTEMPER_UNITY=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
python3 - "$build" "${1:-}" <<'PY'
import concurrent.futures, functools, json, os, re, shlex, subprocess, sys
build, pattern = os.path.abspath(sys.argv[1]), sys.argv[2]
commands = [c for c in json.load(open(f"{build}/compile_commands.json"))
            if os.path.relpath(c["file"]).startswith("temper/") and re.search(pattern, c["file"])]

@functools.lru_cache(None)
def includes_aten(path):
    for line in open(path, errors="replace"):
        if line.startswith("#include <ATen/ATen.h>"):
            return True
        project = re.match(r'#include "(temper/[^"]+)"', line)
        if project and os.path.exists(project.group(1)) and includes_aten(project.group(1)):
            return True
    return False

def arguments_of(command):
    arguments = shlex.split(command["command"])
    at = arguments.index("-o")
    return arguments[:at], arguments[at + 2:]

def run(arguments, command):
    return subprocess.run(arguments, cwd=command["directory"], capture_output=True, text=True)

with_aten = [c for c in commands if includes_aten(os.path.relpath(c["file"]))]
header = f"{build}/aten.h"
if with_aten:
    open(header, "w").write("#include <ATen/ATen.h>\n")
    options, _ = arguments_of(with_aten[0])
    made = run([*options, "-x", "c++-header", header, "-o", header + ".gch"], with_aten[0])
    if made.returncode:
        sys.exit(made.stderr)

def check(command):
    options, source = arguments_of(command)
    if command in with_aten:
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
