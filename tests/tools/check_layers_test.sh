#!/usr/bin/env bash
# tools/check_layers.py finds what it promises to find, and nothing in this tree.
set -uo pipefail
source=${TEMPER_SOURCE_DIR:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
fail() { echo "FAILED: $*" >&2; bad=1; }

python3 "$source/tools/check_layers.py" > "$dir/out" || fail "this tree: $(cat "$dir/out")"

mkdir -p "$dir/tools" "$dir/temper/train" "$dir/temper/ops/native/kernels" "$dir/temper/data" "$dir/temper/dist"
cp "$source/tools/check_layers.py" "$dir/tools/"
for readme in "$source"/temper/*/README.md; do
  mkdir -p "$dir/temper/$(basename "$(dirname "$readme")")"
  cp "$readme" "$dir/temper/$(basename "$(dirname "$readme")")/"
done
# expect MESSAGE FILE LINE: a file with this second line alone is refused with this message; an empty message: is not.
expect() {
  mkdir -p "$dir/$(dirname "$2")"
  printf '#pragma once\n%s\n' "$3" > "$dir/$2"
  status=0; out=$(python3 "$dir/tools/check_layers.py") || status=$?
  if [ -z "$1" ]; then
    [ $status = 0 ] && [ -z "$out" ] || fail "$2: $3: refused: $out"
  else
    [ $status = 1 ] && [ "$out" = "$1" ] || fail "$2: $3: status $status, $out"
  fi
  rm "$dir/$2"
}
expect "temper/train/a.h:2: train includes rl, a higher layer" temper/train/a.h '#include "temper/rl/task.h"'
expect "temper/data/parquet/a.cpp:2: data includes ops, a higher layer" temper/data/parquet/a.cpp '#include "temper/ops/forest.h"'
expect "temper/data/a.cpp:2: LibTorch is not included here" temper/data/a.cpp '#include <ATen/ATen.h>'
expect "temper/ops/native/kernels/a.h:2: LibTorch is not included here" temper/ops/native/kernels/a.h '#include <c10/util/Half.h>'
expect "temper/models/a.h:2: kernels are called by temper/ops alone" temper/models/a.h '#include "temper/ops/native/kernels/gemm.h"'
expect "temper/models/a.h:2: kernels are called by temper/ops alone" temper/models/a.h 'inline int a = kernels::kRows;'
expect "" temper/models/a.h '// as kernels::kRows has it'
expect "" temper/ops/native/a.h 'inline int a = kernels::kRows;'
expect "temper/train/a.cu:2: c10d belongs to temper/dist" temper/train/a.cu '#include <torch/csrc/distributed/c10d/Store.hpp>'
expect "$dir/temper/misc/a.h: folder misc is not in the list of layers" temper/misc/a.h '#include <string>'
expect "temper/train/a.h:2: misc is not in the list of layers" temper/train/a.h '#include "temper/misc/a.h"'
expect "" temper/train/a.h '#include "temper/train/b.h"'
expect "" temper/train/a.h '#include "temper/base/error.h"'
expect "" temper/train/a.h '#include <ATen/ATen.h>'
expect "" temper/dist/a.cpp '#include <torch/csrc/distributed/c10d/Store.hpp>'
printf 'a\nb\nc\nd\n' > "$dir/temper/train/README.md"
expect "temper/train/README.md: 4 lines, expected one to three that say what is where" temper/train/a.h ""
cp "$source/temper/train/README.md" "$dir/temper/train/"
for i in $(seq 30); do touch "$dir/temper/train/file$i.h"; done
expect "temper/train: 31 files, expected at most 30; split the folder" temper/train/a.h ""
expect "" temper/dist/a.h ""
exit $bad
