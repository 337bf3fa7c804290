#!/usr/bin/env bash
# Brings what the build needs: Debian packages, and LibTorch into .deps/ unless one is there already (TORCH_ROOT, or the
# torch of the active Python environment, 2.11 or newer); and, where they can be had, pyarrow, whose C++ library reads
# Parquet, and the sources of XGrammar, which constrain completions to a schema or grammar. Says first what it will
# fetch. Touches nothing else. --torch-root prints where LibTorch is; --other-torch brings its other build, for tests. With
# TEMPER_CUDA=1 it is the build with CUDA and all its libraries, in .deps/torch-cuda. With TEMPER_ARM=1 all of it is for
# aarch64, in .deps/arm64, with Debian's cross compiler (setup_arm.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
torch_version=2.13.0
nvpl_version=0.6.0
pyarrow_version=26.0.1
xgrammar_version=0.2.8
xgrammar_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80  # of the source package
packages=(cmake g++ ninja-build pkg-config libhwy-dev libxxhash-dev libgloo-dev libyaml-cpp-dev nlohmann-json3-dev doctest-dev
          libpcre2-dev libutf8proc-dev libsentencepiece-dev libzstd-dev zlib1g-dev libjemalloc-dev libssl-dev libboost-dev libprotozero-dev
          libjpeg-dev libpng-dev libwebp-dev)

deps=.deps pip_options=()
cpu_torch=(192 760) cuda_torch=(545 1140)  # the two builds of LibTorch: megabytes to download and on disk
if [ -n "${TEMPER_ARM:-}" ]; then . tools/setup_arm.sh; fi
torch_deps=$deps/torch${TEMPER_CUDA:+-cuda}

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

# LibTorch has two builds: the one for processors, whose version ends in +cpu and which not every index has (the package
# index that pip asks by default does not), and the one with CUDA, which needs no GPU and no driver either.
# Whether pip can have the build for processors.
offers_cpu_torch() {
  python3 -m pip install --quiet --dry-run --no-deps --ignore-installed --target "$deps/none" "${pip_options[@]}" "torch==$torch_version+cpu" >/dev/null 2>&1
}

# None of torch's Python dependencies is needed, and of NVIDIA's libraries only the two that CUDA's build links even where
# nothing uses them. install_torch DIRECTORY REQUIREMENT
install_torch() {
  local pip=(python3 -m pip install --quiet --no-deps --target "$1.partial" "${pip_options[@]}") needed=() library
  mkdir -p "$deps"
  rm -rf "$1.partial"
  "${pip[@]}" "$2"
  while read -r library; do
    case $library in
      libcudart.so.*) needed+=("nvidia-cuda-runtime==${library##*.}.*") ;;
      libcupti.so.*) needed+=("nvidia-cuda-cupti==${library##*.}.*") ;;
    esac
  done < <(objdump -p "$1.partial/torch/lib/libtorch_cpu.so" | awk '$1 == "NEEDED" {print $2}')
  if [ ${#needed[@]} -gt 0 ]; then "${pip[@]}" "${needed[@]}"; fi
  rm -rf "$1"
  mv "$1.partial" "$1"
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
  [ -n "${TEMPER_CUDA:-}${TEMPER_ARM:-}" ] || python_torch
}

if [ "${1:-}" = "--torch-root" ]; then torch_root; exit 0; fi

# The other of the two builds than the one that --torch-root names, for tests: its libraries' directory. Exit status 3:
# pip has only the one.
if [ "${1:-}" = "--other-torch" ]; then
  other=.deps/torch-other
  if [ ! -e "$other/torch/lib/libtorch_cpu.so" ]; then
    mkdir -p .deps
    if [ -e "$(torch_root)/lib/libtorch_cuda.so" ]; then
      offers_cpu_torch || exit 3
      requirement="torch==$torch_version+cpu"
    else
      requirement="torch===$torch_version"  # not +cpu, which `==` would take as well
      [ "$(uname -m)" = x86_64 ] || exit 3
    fi
    install_torch "$other" "$requirement" >&2
  fi
  echo "$PWD/$other/torch/lib"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done

# Only the reader of Parquet wants it: the build goes on without.
has_pyarrow() {
  if [ -e "$deps/arrow/pyarrow/include/parquet/arrow/reader.h" ]; then return 0; fi
  [ -z "${TEMPER_ARM:-}" ] && python3 -c 'import importlib.util, os, sys
root = os.path.dirname(importlib.util.find_spec("pyarrow").origin)
sys.exit(not os.path.exists(os.path.join(root, "include/parquet/arrow/reader.h")))' 2>/dev/null
}

has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_sysroot() { [ -z "${TEMPER_ARM:-}" ] || { [ -e "$sysroot/complete" ] && [ -d "$sysroot/usr/share/doc" ]; }; }
has_xgrammar() { [ -e .deps/xgrammar/include/xgrammar/xgrammar.h ]; }
if ! has_pip && ! { [ -n "$(torch_root)" ] && has_pyarrow && has_xgrammar; }; then missing+=(python3-pip); fi

# What is about to be fetched: megabytes to download and on disk.
download=0 disk=0 list=()
plan() { list+=("$1"); download=$((download + $2)); disk=$((disk + $3)); }
[ ${#missing[@]} -eq 0 ] || plan "${#missing[@]} Debian packages" $((1 + ${#missing[@]})) $((10 * ${#missing[@]}))
# Without pip, which is then among the packages, it is not known yet which build of LibTorch there is.
torch_build=unknown
if [ -z "$(torch_root)" ]; then
  mkdir -p "$deps"
  if [ -n "${TEMPER_CUDA:-}" ]; then
    plan "LibTorch $torch_version with CUDA and its libraries" 2400 4900
  elif ! has_pip; then
    plan "LibTorch $torch_version (${cpu_torch[0]} MB for the build without CUDA, ${cuda_torch[0]} MB where pip's index has only the one with CUDA)" "${cuda_torch[@]}"
  elif offers_cpu_torch; then
    torch_build=cpu
    plan "LibTorch $torch_version" "${cpu_torch[@]}"
  else
    torch_build=cuda
    plan "LibTorch $torch_version (${cuda_torch[0]} MB: pip's index has only the build with CUDA; with PyTorch's index of CPU wheels in PIP_EXTRA_INDEX_URL it is ${cpu_torch[0]} MB)" "${cuda_torch[@]}"
  fi
fi
has_pyarrow || plan "pyarrow $pyarrow_version" 55 170
has_xgrammar || plan "XGrammar's sources" 3 3
has_sysroot || plan "Debian's libraries for aarch64" 61 330
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
  if [ -n "${TEMPER_CUDA:-}" ]; then
    install_cuda_torch
    rm -rf "$torch_deps"
    mv .deps/torch.partial "$torch_deps"
  else
    if [ $torch_build = unknown ]; then if offers_cpu_torch; then torch_build=cpu; else torch_build=cuda; fi; fi
    if [ $torch_build = cpu ]; then megabytes=("${cpu_torch[@]}"); else megabytes=("${cuda_torch[@]}"); fi
    echo "setup: installing torch $torch_version into $torch_deps (${megabytes[0]} MB to download, ${megabytes[1]} MB on disk)"
    install_torch "$torch_deps" "torch==$torch_version$([ $torch_build = cuda ] || echo +cpu)"
  fi
fi

# On ARM torch has NVPL's libraries without their licence, which packages need.
if [ -e "$torch_deps/torch/lib/libnvpl_blas_core.so.0" ] && ! compgen -G "$torch_deps/nvpl_blas-*.dist-info" >/dev/null; then
  python3 -m pip install --quiet --no-deps --target "$torch_deps/nvpl.partial" "${pip_options[@]}" "nvpl-blas==$nvpl_version"
  mv "$torch_deps"/nvpl.partial/nvpl_blas-*.dist-info "$torch_deps"
  rm -rf "$torch_deps/nvpl.partial"
fi

if ! has_pyarrow; then
  echo "setup: installing pyarrow $pyarrow_version into $deps/arrow"
  rm -rf "$deps/arrow.partial"
  mkdir -p "$deps"
  if python3 -m pip install --quiet --retries 1 --only-binary :all: --no-deps --target "$deps/arrow.partial" "${pip_options[@]}" \
      "pyarrow==$pyarrow_version" 2>"$deps/arrow.log"; then
    rm -rf "$deps/arrow" "$deps/arrow.log"
    mv "$deps/arrow.partial" "$deps/arrow"
  else
    rm -rf "$deps/arrow.partial"
    echo "setup: Parquet is off: pip cannot install pyarrow $pyarrow_version ($deps/arrow.log)"
  fi
fi

has_sysroot || fill_sysroot

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
