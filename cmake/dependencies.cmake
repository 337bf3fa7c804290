find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

if(TEMPER_TORCH)
  # TORCH_ROOT names a directory that holds the torch package's share/cmake; tools/setup.sh finds or installs one.
  set(TORCH_ROOT "${CMAKE_SOURCE_DIR}/.deps/torch/torch" CACHE PATH "LibTorch: the torch package's directory")
  # Only the paths are wanted: the package's own targets drag flags along that would drop the precompiled header.
  find_path(TORCH_INCLUDE ATen/ATen.h PATHS ${TORCH_ROOT}/include NO_DEFAULT_PATH REQUIRED)
  set(TORCH_LIB_DIR ${TORCH_ROOT}/lib)
  add_library(temper_torch INTERFACE)
  target_include_directories(temper_torch SYSTEM INTERFACE
    ${TORCH_INCLUDE} ${TORCH_INCLUDE}/torch/csrc/api/include)
  target_link_libraries(temper_torch INTERFACE
    ${TORCH_LIB_DIR}/libtorch_cpu.so ${TORCH_LIB_DIR}/libc10.so ${TORCH_LIB_DIR}/libtorch.so)
  # The wheel brings its own OpenMP: a second pool of threads beside it would cost up to half of the speed.
  file(GLOB TORCH_GOMP ${TORCH_LIB_DIR}/libgomp*.so* ${TORCH_ROOT}/../torch.libs/libgomp*.so*)
  if(TORCH_GOMP)
    list(GET TORCH_GOMP 0 TORCH_GOMP)
  else()
    set(TORCH_GOMP gomp)
  endif()
  target_link_libraries(temper_torch INTERFACE ${TORCH_GOMP})
  find_path(GLOO_INCLUDE gloo/algorithm.h)
  # A caching malloc: training frees and takes large buffers all the time, and page faults cost more than arithmetic.
  find_library(JEMALLOC jemalloc)
endif()
