# Finds LibTorch and makes the target yoke::libtorch, without TorchConfig.cmake: that one refuses to work
# where the wheel was built with CUDA and the machine has no CUDA toolkit, which is every laptop.
#
# Looked at in this order (the choice is printed):
#   1. Torch_DIR, then CMAKE_PREFIX_PATH
#   2. of an installed package: the one it was built with (YOKE_LIBTORCH_ROOT, YOKE_LIBTORCH_VERSION)
#   3. the torch that `python3` imports
#   4. .deps/venv of this source tree, made by tools/setup
#
# Sets LibTorch_ROOT, LibTorch_VERSION, LibTorch_ORIGIN, LibTorch_HAS_CUDA (the libraries are there).

function(_libtorch_accept root origin)
  if(LibTorch_ROOT OR NOT EXISTS "${root}/include/torch/csrc/api/include/torch/torch.h")
    return()
  endif()
  get_filename_component(root "${root}" REALPATH)
  set(LibTorch_ROOT "${root}" PARENT_SCOPE)
  set(LibTorch_ORIGIN "${origin}" PARENT_SCOPE)
endfunction()

unset(LibTorch_ROOT)
if(Torch_DIR)  # .../share/cmake/Torch
  get_filename_component(_root "${Torch_DIR}/../../.." ABSOLUTE)
  _libtorch_accept("${_root}" "Torch_DIR")
endif()
set(_prefixes ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" _from_environment "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND _prefixes ${_from_environment})
endif()
foreach(_prefix IN LISTS _prefixes)
  # torch.utils.cmake_prefix_path is <root>/share/cmake; a LibTorch archive is <root> itself.
  _libtorch_accept("${_prefix}" "CMAKE_PREFIX_PATH")
  _libtorch_accept("${_prefix}/../.." "CMAKE_PREFIX_PATH")
endforeach()
if(YOKE_LIBTORCH_ROOT)
  _libtorch_accept("${YOKE_LIBTORCH_ROOT}" "the one yoke was built with")
endif()
if(NOT LibTorch_ROOT)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_root)
    _libtorch_accept("${_root}" "python3's torch")
  endif()
endif()
file(GLOB _from_venv "${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
foreach(_root IN LISTS _from_venv)
  _libtorch_accept("${_root}" ".deps/venv")
endforeach()

if(LibTorch_ROOT)
  # The version stands in a header since 2.6; older ones are not supported.
  file(STRINGS "${LibTorch_ROOT}/include/torch/headeronly/version.h" _lines
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${_lines}")
  set(LibTorch_HAS_CUDA OFF)
  if(EXISTS "${LibTorch_ROOT}/lib/libtorch_cuda.so")
    set(LibTorch_HAS_CUDA ON)
  endif()
  # The OpenMP runtime that libtorch_cpu itself loads: a second one would double the threads.
  file(GLOB _openmp "${LibTorch_ROOT}/lib/libgomp*.so*" "${LibTorch_ROOT}/../torch.libs/libgomp*.so*")
endif()

set(_libtorch_gone "no LibTorch found. Run tools/setup, or set Torch_DIR to <libtorch>/share/cmake/Torch")
if(YOKE_LIBTORCH_ROOT AND NOT EXISTS "${YOKE_LIBTORCH_ROOT}/include/torch/csrc/api/include/torch/torch.h")
  set(_libtorch_gone "yoke was built with LibTorch ${YOKE_LIBTORCH_VERSION} in ${YOKE_LIBTORCH_ROOT}, which is gone")
  if(LibTorch_ROOT)
    message(STATUS "${_libtorch_gone}; using ${LibTorch_ROOT}")
  endif()
  string(APPEND _libtorch_gone ". Set Torch_DIR to <libtorch>/share/cmake/Torch of the same version")
endif()
if(LibTorch_ROOT AND YOKE_LIBTORCH_VERSION AND NOT LibTorch_VERSION VERSION_EQUAL YOKE_LIBTORCH_VERSION)
  message(WARNING "yoke was built with LibTorch ${YOKE_LIBTORCH_VERSION}; ${LibTorch_ROOT} is ${LibTorch_VERSION}, and programs may not link or run")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT LibTorch_VERSION VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "${_libtorch_gone}")

set(LibTorch_FOUND_ROOT "${LibTorch_ROOT}" CACHE INTERNAL "The LibTorch that was chosen")
if(LibTorch_FOUND AND NOT TARGET yoke::libtorch)
  # LibTorch lives on the shared standard library. A compiler that finds only a static one would put a second copy into
  # the program, and the two crash on each other's locales and once-flags: name the shared one.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so.6 OUTPUT_VARIABLE _stdcxx
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${_stdcxx}")
    find_library(_stdcxx_found NAMES libstdc++.so.6 PATHS /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu /usr/lib64 REQUIRED)
    set(_stdcxx "${_stdcxx_found}")
  endif()
  message(STATUS "LibTorch ${LibTorch_VERSION} from ${LibTorch_ORIGIN}: ${LibTorch_ROOT} (CUDA libraries: ${LibTorch_HAS_CUDA})")
  add_library(yoke::libtorch INTERFACE IMPORTED)
  set_target_properties(yoke::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_ROOT}/include;${LibTorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1"
    # libtorch_cpu's own dependencies (CUDA runtime in a CUDA wheel) are found by its run path at run time.
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined;-Wl,-rpath,${LibTorch_ROOT}/lib"
    INTERFACE_LINK_LIBRARIES "${_stdcxx};${LibTorch_ROOT}/lib/libtorch_cpu.so;${LibTorch_ROOT}/lib/libc10.so")
endif()
