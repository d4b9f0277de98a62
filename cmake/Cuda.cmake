# Decides whether the CUDA parts are built, and makes yoke::libtorch_cuda.
#
# YOKE_CUDA = ON, OFF or AUTO: AUTO builds them where LibTorch has CUDA libraries, the CUDA headers are there
# (toolkit, or the wheels that come with torch) and the machine has an NVIDIA driver.
set(YOKE_CUDA AUTO CACHE STRING "Build the CUDA parts: ON, OFF or AUTO")

set(YOKE_WITH_CUDA OFF)
set(YOKE_WITH_NVCC OFF)
set(_cuda_why "YOKE_CUDA=OFF")
if(NOT YOKE_CUDA STREQUAL "OFF")
  # crt/ is missing from some wheels, whose headers then do not compile.
  find_path(YOKE_CUDA_INCLUDE crt/host_defines.h
    HINTS "${LibTorch_ROOT}/../nvidia/cuda_runtime/include" "${LibTorch_ROOT}/../nvidia/cu13/include"
          "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
  if(NOT LibTorch_HAS_CUDA)
    set(_cuda_why "this LibTorch is a CPU build")
  elseif(NOT YOKE_CUDA_INCLUDE)
    set(_cuda_why "cuda_runtime_api.h not found: install the CUDA toolkit or set CUDA_HOME")
  elseif(YOKE_CUDA STREQUAL "AUTO" AND NOT EXISTS /proc/driver/nvidia AND NOT EXISTS /dev/nvidiactl)
    set(_cuda_why "no NVIDIA driver here; -DYOKE_CUDA=ON builds them anyway")
  else()
    set(YOKE_WITH_CUDA ON)
  endif()
endif()
if(YOKE_CUDA STREQUAL "ON" AND NOT YOKE_WITH_CUDA)
  message(FATAL_ERROR "YOKE_CUDA=ON, but ${_cuda_why}")
endif()

if(YOKE_WITH_CUDA)
  message(STATUS "CUDA parts: built, headers from ${YOKE_CUDA_INCLUDE}")
  # Own kernels need the CUDA compiler; without one LibTorch's are used.
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    # LibTorch brings the runtime library; a second, static one would keep state of its own.
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(YOKE_WITH_NVCC ON)
    message(STATUS "CUDA kernels: built with ${CMAKE_CUDA_COMPILER}")
  else()
    message(STATUS "CUDA kernels: not built (no nvcc on the path)")
  endif()
  file(GLOB _cudart "${LibTorch_ROOT}/../nvidia/cuda_runtime/lib/libcudart.so*" "${LibTorch_ROOT}/../nvidia/cu13/lib/libcudart.so*")
  if(NOT _cudart)
    find_library(_cudart cudart HINTS "${YOKE_CUDA_INCLUDE}/../lib64" "${YOKE_CUDA_INCLUDE}/../lib" REQUIRED)
  endif()
  list(GET _cudart 0 _cudart)
  # Matrix products with epilogues: the cuBLASLt that LibTorch loads.
  file(GLOB _cublaslt "${LibTorch_ROOT}/../nvidia/cublas/lib/libcublasLt.so*" "${LibTorch_ROOT}/../nvidia/cu13/lib/libcublasLt.so*")
  if(NOT _cublaslt)
    find_library(_cublaslt cublasLt HINTS "${YOKE_CUDA_INCLUDE}/../lib64" "${YOKE_CUDA_INCLUDE}/../lib" REQUIRED)
  endif()
  list(GET _cublaslt 0 _cublaslt)
  get_filename_component(_cudart_folder "${_cudart}" DIRECTORY)
  # CUDA's other headers (cuBLAS, cuSPARSE, cuSOLVER) lie beside the runtime's in a toolkit, in folders of their own in wheels.
  file(GLOB _cuda_includes "${LibTorch_ROOT}/../nvidia/*/include")
  add_library(yoke::libtorch_cuda INTERFACE IMPORTED)
  set_target_properties(yoke::libtorch_cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${YOKE_CUDA_INCLUDE};${_cuda_includes}"
    # Nothing refers to libtorch_cuda by name: its operators register themselves when it is loaded.
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${_cudart_folder}"
    INTERFACE_LINK_LIBRARIES "-Wl,--no-as-needed,${LibTorch_ROOT}/lib/libtorch_cuda.so,${LibTorch_ROOT}/lib/libc10_cuda.so,--as-needed;${_cudart};${_cublaslt}")
else()
  message(STATUS "CUDA parts: not built (${_cuda_why})")
endif()
