# libtemper_nccl: the plugin with NCCL for ranks on GPUs (temper/dist/nccl), built where LibTorch has CUDA and the
# headers of CUDA and NCCL are there, as the packages that LibTorch's build with CUDA names bring them. No CUDA compiler
# is needed.
if(NOT EXISTS ${TORCH_LIB_DIR}/libtorch_cuda.so)
  return()
endif()
file(GLOB TEMPER_CUDA_INCLUDES ${TORCH_ROOT}/../nvidia/*/include ${TORCH_ROOT}/../nvidia/*/*/include)
find_path(NCCL_INCLUDE nccl.h PATHS ${TEMPER_CUDA_INCLUDES})
find_path(CUDART_INCLUDE cuda_runtime_api.h PATHS ${TEMPER_CUDA_INCLUDES} /usr/local/cuda/include)
find_path(CUDA_CRT_INCLUDE crt/host_config.h PATHS ${TEMPER_CUDA_INCLUDES} /usr/local/cuda/include)
find_path(CUDA_CCCL_INCLUDE nv/target PATHS ${TEMPER_CUDA_INCLUDES} /usr/local/cuda/include /usr/local/cuda/include/cccl)
if(NOT NCCL_INCLUDE OR NOT CUDART_INCLUDE OR NOT CUDA_CRT_INCLUDE OR NOT CUDA_CCCL_INCLUDE)
  message(STATUS "No NCCL: its header or CUDA's is not there; ranks on GPUs go through the host's memory")
  return()
endif()
add_library(temper_nccl SHARED ${CMAKE_SOURCE_DIR}/temper/dist/nccl/nccl.cpp)
target_include_directories(temper_nccl PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(temper_nccl SYSTEM PRIVATE ${NCCL_INCLUDE} ${CUDART_INCLUDE} ${CUDA_CRT_INCLUDE} ${CUDA_CCCL_INCLUDE}
  ${TEMPER_CUDA_INCLUDES})
target_link_libraries(temper_nccl PRIVATE temper_torch ${TORCH_LIB_DIR}/libtorch_cuda.so ${TORCH_LIB_DIR}/libc10_cuda.so)
set_target_properties(temper_nccl PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} INSTALL_RPATH "$ORIGIN;${TORCH_LIB_DIR}")
