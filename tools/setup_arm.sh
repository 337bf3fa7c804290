# For tools/setup.sh, which reads it with TEMPER_ARM=1: what a build for aarch64 on another machine needs. Its Debian
# packages are unpacked into .deps/arm64/sysroot, not installed: many -dev packages of two architectures exclude each other.
unset TORCH_ROOT  # this machine's
deps=.deps/arm64
sysroot=$deps/sysroot
pip_options=(--only-binary :all: --platform manylinux2014_aarch64)
for minor in {17..36}; do pip_options+=(--platform "manylinux_2_${minor}_aarch64"); done  # Debian 12's glibc
cpu_torch=(150 600) cuda_torch=(430 1150)

sysroot_packages=()
for package in "${packages[@]}"; do
  case $package in
    cmake | g++ | ninja-build | pkg-config | doctest-dev) ;;
    *) sysroot_packages+=("$package") ;;
  esac
done
packages=(cmake g++-aarch64-linux-gnu ninja-build pkg-config)

# Asks apt as a machine would on which nothing is installed, so that it names everything that the packages depend on. Its
# lists and archives are here, not the system's.
fill_sysroot() {
  local apt=$PWD/$deps/apt archive link
  echo "setup: unpacking Debian's libraries for aarch64 into $sysroot"
  rm -rf "$apt" "$sysroot"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$sysroot"
  : > "$apt/status"
  local options=(-qq -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o APT::Architecture=arm64 -o APT::Architectures::=arm64
                 -o Debug::NoLocking=true -o APT::Sandbox::User=)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --download-only --no-install-recommends "${sysroot_packages[@]}"
  for archive in "$apt"/archives/*.deb; do dpkg -x "$archive" "$sysroot"; done
  # Links to /lib would lead to the libraries of this machine.
  find "$sysroot" -type l -lname '/*' | while read -r link; do ln -sfnr "$sysroot$(readlink "$link")" "$link"; done
  rm -rf "$apt" "$sysroot"/usr/share/{man,locale,info,lintian}
  find "$sysroot/usr/share/doc" -type f ! -name copyright -delete  # packages take the notices
  # Under an emulator LibTorch would read this machine's /proc/cpuinfo, and crash on a processor that is not ARM.
  mkdir -p "$sysroot/proc"
  for processor in 0 1; do
    printf '%s\t: %s\n' processor $processor Features 'fp asimd atomics fphp asimdhp asimdrdm asimddp' 'CPU implementer' 0x41 \
      'CPU architecture' 8 'CPU variant' 0x3 'CPU part' 0xd0c 'CPU revision' 1
    echo
  done > "$sysroot/proc/cpuinfo"
  touch "$sysroot/complete"
}
