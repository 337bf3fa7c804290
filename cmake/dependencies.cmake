find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

if(TEMPER_TORCH)
  # The package's own macros decide the layout of its classes.
  pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
  # TORCH_ROOT names a directory that holds the torch package's share/cmake; tools/setup.sh finds or installs one.
  set(TORCH_ROOT "${CMAKE_SOURCE_DIR}/.deps/torch/torch" CACHE PATH "LibTorch: the torch package's directory")
  include(${CMAKE_CURRENT_LIST_DIR}/torch.cmake)
  find_path(GLOO_INCLUDE gloo/algorithm.h)
  # A caching malloc: training frees and takes large buffers all the time, and page faults cost more than arithmetic.
  find_library(JEMALLOC jemalloc)
endif()
