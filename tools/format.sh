#!/usr/bin/env bash
# Formats the sources; --check names those that are not formatted and fails. clang-format comes from pip, in one
# version, as every version formats a little differently.
set -euo pipefail
cd "$(dirname "$0")/.."
version=19.1.7
program=.deps/clang-format-$version/clang_format/data/bin/clang-format
if [ ! -x "$program" ]; then
  rm -rf ".deps/clang-format-$version"
  python3 -m pip install --quiet --target ".deps/clang-format-$version" "clang-format==$version"
fi
arguments=(-i)
if [ "${1:-}" = "--check" ]; then arguments=(--dry-run -Werror); fi
git ls-files -z -- '*.cpp' '*.h' | xargs -0 "$program" "${arguments[@]}"
