# The preset cuda. There are no kernels for GPUs yet: what is here says so, and what else would be missing, and the build goes on
# for the CPU.
option(TEMPER_CUDA "Build for GPUs where nvcc and a LibTorch with CUDA are" OFF)
if(TEMPER_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA is off: nvcc was not found")
  elseif(NOT EXISTS ${TORCH_ROOT}/lib/libtorch_cuda.so)
    message(STATUS "CUDA is off: the LibTorch at ${TORCH_ROOT} was built without it")
  else()
    message(STATUS "CUDA is off: this version has no kernels for it")
  endif()
endif()
