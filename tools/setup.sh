#!/usr/bin/env bash
# Brings what the build needs: Debian packages, and LibTorch into .deps/ unless one is there already (TORCH_ROOT, or the
# torch of the active Python environment, 2.11 or newer); and, where they can be had, pyarrow, whose C++ library reads
# Parquet, and the sources of XGrammar, which constrain completions to a schema or grammar. Says first what it will
# fetch. Touches nothing else. --torch-root prints where LibTorch is. With TEMPER_CUDA=1 it is the build with CUDA, in
# .deps/torch-cuda.
set -euo pipefail
cd "$(dirname "$0")/.."
torch_version=2.13.0
pyarrow_version=26.0.1
xgrammar_version=0.2.8
xgrammar_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80  # of the source package
packages=(cmake g++ ninja-build pkg-config libhwy-dev libxxhash-dev libgloo-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev doctest-dev
          libpcre2-dev libutf8proc-dev libsentencepiece-dev libzstd-dev zlib1g-dev libjemalloc-dev libcpp-httplib-dev libboost-dev libprotozero-dev)

torch_deps=.deps/torch${TEMPER_CUDA:+-cuda}

# The directory of an installed torch of 2.11 or newer, without importing it: that takes seconds.
python_torch() {
  python3 - <<'PY' 2>/dev/null || true
import importlib.util, os, re
spec = importlib.util.find_spec("torch")
root = os.path.dirname(spec.origin)
version = re.search(r"__version__ = '(\d+)\.(\d+)", open(os.path.join(root, "version.py")).read())
if tuple(map(int, version.groups())) >= (2, 11) and os.path.exists(os.path.join(root, "include/ATen/ATen.h")):
    print(root)
PY
}

# LibTorch's build for processors into .deps/torch.partial. On x86-64 many indexes have two: the one with the local
# version +cpu, and one that comes with gigabytes of CUDA libraries. None of torch's Python dependencies is needed.
install_torch() {
  local pip=(python3 -m pip install --quiet --no-deps --target .deps/torch.partial)
  mkdir -p .deps
  rm -rf .deps/torch.partial
  echo "setup: installing torch $torch_version into .deps/torch"
  if "${pip[@]}" "torch==$torch_version+cpu" 2>.deps/torch.log; then rm .deps/torch.log; return; fi
  echo "setup: pip finds no CPU-only build of torch $torch_version (.deps/torch.log); taking the one there is." \
    "On x86-64 that may be CUDA's, about 900 MB: stop here, and set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU wheels," \
    "to have the small one"
  "${pip[@]}" "torch==$torch_version"
  # CUDA's build links its profiler and runtime even where nothing uses them.
  local needed=() library
  while read -r library; do
    case $library in
      libcudart.so.*) needed+=("nvidia-cuda-runtime") ;;
      libcupti.so.*) needed+=("nvidia-cuda-cupti") ;;
    esac
  done < <(ldd .deps/torch.partial/torch/lib/libtorch_cpu.so | awk '/not found/ {print $1}')
  if [ ${#needed[@]} -gt 0 ]; then "${pip[@]}" "${needed[@]}"; fi
}

# LibTorch's build with CUDA and the libraries that it names. It links none of this project's code to CUDA, so that no
# CUDA compiler is needed; the program runs without a GPU, too. torch===VERSION: not the build +cpu, which indexes offer
# beside it.
install_cuda_torch() {
  local pip=(python3 -m pip install --quiet --target .deps/torch.partial) libraries
  mkdir -p .deps
  rm -rf .deps/torch.partial
  echo "setup: installing torch $torch_version with CUDA into $torch_deps"
  "${pip[@]}" --no-deps "torch===$torch_version"
  mapfile -t libraries < <(sed -n 's/^Requires-Dist: \(\(nvidia-\|cuda-toolkit\)[^;]*\);.*/\1/p' .deps/torch.partial/torch-*.dist-info/METADATA)
  # The plugin with NCCL includes CUDA's headers, which want two packages more.
  "${pip[@]}" "${libraries[@]}" $(printf '%s\n' "${libraries[@]}" | sed -n 's/^cuda-toolkit\[[^]]*\]/cuda-toolkit[crt,cccl]/p')
}

torch_root() {
  if [ -n "${TORCH_ROOT:-}" ]; then echo "$TORCH_ROOT"; return; fi
  if [ -e "$torch_deps/torch/include/ATen/ATen.h" ]; then echo "$PWD/$torch_deps/torch"; return; fi
  [ -n "${TEMPER_CUDA:-}" ] || python_torch
}

if [ "${1:-}" = "--torch-root" ]; then torch_root; exit 0; fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done

# Only the reader of Parquet wants it: the build goes on without.
has_pyarrow() {
  [ -e .deps/arrow/pyarrow/include/parquet/arrow/reader.h ] ||
    python3 -c 'import importlib.util, os, sys
root = os.path.dirname(importlib.util.find_spec("pyarrow").origin)
sys.exit(not os.path.exists(os.path.join(root, "include/parquet/arrow/reader.h")))' 2>/dev/null
}

has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_xgrammar() { [ -e .deps/xgrammar/include/xgrammar/xgrammar.h ]; }
if ! has_pip && ! { [ -n "$(torch_root)" ] && has_pyarrow && has_xgrammar; }; then missing+=(python3-pip); fi

# What is about to be fetched: megabytes to download and on disk.
download=0 disk=0 list=()
plan() { list+=("$1"); download=$((download + $2)); disk=$((disk + $3)); }
[ ${#missing[@]} -eq 0 ] || plan "${#missing[@]} Debian packages" $((1 + ${#missing[@]})) $((10 * ${#missing[@]}))
if [ -z "$(torch_root)" ]; then
  if [ -n "${TEMPER_CUDA:-}" ]; then plan "LibTorch $torch_version with CUDA" 2400 4900; else plan "LibTorch $torch_version" 192 760; fi
fi
has_pyarrow || plan "pyarrow $pyarrow_version" 55 170
has_xgrammar || plan "XGrammar's sources" 3 3
if [ ${#list[@]} -gt 0 ]; then
  printf -v all ', %s' "${list[@]}"
  echo "setup: will fetch ${all:2}: about $download MB to download, $disk MB on disk, $((1 + download / 600)) to $((2 + download / 60)) minutes"
  free=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1024))
  if [ "$free" -lt $((disk + 3000)) ]; then
    echo "setup: only $free MB are free here; with the build it takes about $((disk + 3000)) MB" >&2
  fi
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing Debian packages: ${missing[*]}"
  run=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install these packages and run again: ${missing[*]}" >&2; exit 1; }
    run=(sudo)
  fi
  "${run[@]}" apt-get update -qq
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if [ -n "${TORCH_ROOT:-}" ] && [ ! -e "$TORCH_ROOT/include/ATen/ATen.h" ]; then
  echo "setup: TORCH_ROOT=$TORCH_ROOT holds no include/ATen/ATen.h; it must be the torch package's directory" >&2
  exit 1
fi
if [ -z "$(torch_root)" ]; then
  has_pip || { echo "setup: $(command -v python3) has no pip (Debian's python3 has, by the package python3-pip)" >&2; exit 1; }
  if [ -n "${TEMPER_CUDA:-}" ]; then install_cuda_torch; else install_torch; fi
  rm -rf "$torch_deps"
  mv .deps/torch.partial "$torch_deps"
fi

if ! has_pyarrow; then
  echo "setup: installing pyarrow $pyarrow_version into .deps/arrow"
  rm -rf .deps/arrow.partial
  mkdir -p .deps
  if python3 -m pip install --quiet --retries 1 --only-binary :all: --no-deps --target .deps/arrow.partial \
      "pyarrow==$pyarrow_version" 2>.deps/arrow.log; then
    rm -rf .deps/arrow .deps/arrow.log
    mv .deps/arrow.partial .deps/arrow
  else
    rm -rf .deps/arrow.partial
    echo "setup: Parquet is off: pip cannot install pyarrow $pyarrow_version (.deps/arrow.log)"
  fi
fi

# Only completions that keep to a grammar want it: the build goes on without.
if ! has_xgrammar; then
  echo "setup: fetching the sources of xgrammar $xgrammar_version into .deps/xgrammar"
  rm -rf .deps/xgrammar.partial
  mkdir -p .deps/xgrammar.partial
  echo "xgrammar==$xgrammar_version --hash=sha256:$xgrammar_sha256" > .deps/xgrammar.partial/requirements
  if python3 -m pip download --quiet --retries 1 --no-binary xgrammar --no-deps --require-hashes -d .deps/xgrammar.partial \
      -r .deps/xgrammar.partial/requirements 2>.deps/xgrammar.log &&
      tar -xzf .deps/xgrammar.partial/xgrammar-$xgrammar_version.tar.gz -C .deps/xgrammar.partial --strip-components 1; then
    rm -rf .deps/xgrammar .deps/xgrammar.log
    mkdir -p .deps/xgrammar/3rdparty
    for part in cpp include LICENSE NOTICE 3rdparty/picojson 3rdparty/dlpack; do
      mv ".deps/xgrammar.partial/$part" ".deps/xgrammar/$part"
    done
  else
    echo "setup: completions by a grammar are off: pip cannot fetch xgrammar $xgrammar_version (.deps/xgrammar.log)"
  fi
  rm -rf .deps/xgrammar.partial
fi
