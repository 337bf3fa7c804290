# Builds for aarch64 on another machine: Debian's cross compiler, with the headers and libraries that tools/setup_arm.sh
# brings into .deps/arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(TEMPER_ARM_DEPS ${CMAKE_CURRENT_LIST_DIR}/../.deps/arm64 ABSOLUTE)
set(CMAKE_SYSROOT ${TEMPER_ARM_DEPS}/sysroot)
# LibTorch and Arrow lie beside the sysroot; XGrammar's sources are every target's.
set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT} ${TEMPER_ARM_DEPS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/lib/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
# Where the linker finds what LibTorch's libraries need.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT ${CMAKE_EXE_LINKER_FLAGS_INIT})
set(ARROW_ROOT ${TEMPER_ARM_DEPS}/arrow/pyarrow CACHE PATH "The pyarrow package's directory")
