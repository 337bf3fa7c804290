#!/usr/bin/env bash
# Compiles every source by itself, without a precompiled header and without code (-fsyntax-only): a unity build and the precompiled
# header both hide a missing include. Usage: tools/check_sources.sh [PATTERN]: those of temper/ whose path matches the regular
# expression, or all.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-syntax
cmake -S . -B "$build" -G Ninja -DTORCH_ROOT="$(tools/setup.sh --torch-root)" -DTEMPER_UNITY=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
python3 - "$build/compile_commands.json" "${1:-}" <<'PY'
import concurrent.futures, json, os, re, shlex, subprocess, sys
commands = [c for c in json.load(open(sys.argv[1])) if os.path.relpath(c["file"]).startswith("temper/") and re.search(sys.argv[2], c["file"])]
def check(command):
    arguments = shlex.split(command["command"])
    at = arguments.index("-o")
    arguments[at:at + 2] = ["-fsyntax-only"]
    done = subprocess.run(arguments, cwd=command["directory"], capture_output=True, text=True)
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
