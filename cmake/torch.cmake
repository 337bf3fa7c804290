# temper_torch: the headers and libraries of LibTorch under TORCH_ROOT, the torch package's directory. The build
# and the installed package (temperConfig.cmake) both find it here.
# Only the paths are wanted: the package's own targets drag flags along that would drop the precompiled header.
find_path(TORCH_INCLUDE ATen/ATen.h PATHS ${TORCH_ROOT}/include NO_DEFAULT_PATH REQUIRED)
set(TORCH_LIB_DIR ${TORCH_ROOT}/lib)
add_library(temper_torch INTERFACE IMPORTED)
target_include_directories(temper_torch SYSTEM INTERFACE
  ${TORCH_INCLUDE} ${TORCH_INCLUDE}/torch/csrc/api/include)
# Not libtorch.so, which is empty and needs CUDA's libraries where LibTorch has CUDA.
target_link_libraries(temper_torch INTERFACE ${TORCH_LIB_DIR}/libtorch_cpu.so ${TORCH_LIB_DIR}/libc10.so)
# The wheel brings its own OpenMP: a second pool of threads beside it would cost up to half of the speed.
file(GLOB TORCH_GOMP ${TORCH_LIB_DIR}/libgomp*.so* ${TORCH_ROOT}/../torch.libs/libgomp*.so*)
if(TORCH_GOMP)
  list(GET TORCH_GOMP 0 TORCH_GOMP)
else()
  set(TORCH_GOMP gomp)
endif()
target_link_libraries(temper_torch INTERFACE ${TORCH_GOMP})
