# What we use besides LibTorch: packages of the distribution, or headers collected by tools/bundle into .deps/include.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

set(_bundle "${CMAKE_SOURCE_DIR}/.deps/include")
find_package(ZLIB QUIET)
if(NOT ZLIB_FOUND)
  # Every system has zlib's library; its headers may only be in the bundle.
  find_path(YOKE_ZLIB_INCLUDE zlib.h HINTS "${_bundle}" REQUIRED)
  find_library(YOKE_ZLIB_LIBRARY NAMES z libz.so.1 REQUIRED)
  add_library(ZLIB::ZLIB UNKNOWN IMPORTED)
  set_target_properties(ZLIB::ZLIB PROPERTIES IMPORTED_LOCATION "${YOKE_ZLIB_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${YOKE_ZLIB_INCLUDE}")
endif()
# Likewise: compilers and packages depend on zstd's library.
find_path(YOKE_ZSTD_INCLUDE zstd.h HINTS "${_bundle}" REQUIRED)
find_library(YOKE_ZSTD_LIBRARY NAMES zstd libzstd.so.1 REQUIRED)
find_path(YOKE_TOMLPP_INCLUDE toml++/toml.h HINTS "${_bundle}" REQUIRED)
find_path(YOKE_CLI11_INCLUDE CLI/CLI.hpp HINTS "${_bundle}" REQUIRED)
find_path(YOKE_XXHASH_INCLUDE xxhash.h HINTS "${_bundle}" REQUIRED)
# data.name = images; without both it is an error at run time (src/yoke/data/formats/images/codecs_absent.cpp). Another libjpeg
# than libjpeg-turbo lacks what we call.
include(CheckSymbolExists)
find_package(JPEG QUIET)
find_package(PNG QUIET)
set(YOKE_WITH_IMAGES OFF)
if(JPEG_FOUND AND PNG_FOUND)
  set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${JPEG_LIBRARIES})
  check_symbol_exists(jpeg_crop_scanline "stdio.h;jpeglib.h" YOKE_HAVE_JPEG_TURBO)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(YOKE_HAVE_JPEG_TURBO)
    set(YOKE_WITH_IMAGES ON)
  endif()
endif()
if(NOT YOKE_WITH_IMAGES)
  message(STATUS "Images: none (libjpeg-turbo or libpng not found)")
endif()

# LibTorch brings an fmt of its own, headers only, which costs a source 5 s. Ours, which is compiled, is found before it here;
# programs against the installed package use LibTorch's (FMT_HEADER_ONLY), and the two do not meet: fmt's names have its version in them.
get_target_property(_fmt fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(YOKE_FMT_INCLUDE fmt/core.h HINTS ${_fmt} REQUIRED)
set(YOKE_FMT_FIRST "${CMAKE_BINARY_DIR}/fmt_first")
file(MAKE_DIRECTORY "${YOKE_FMT_FIRST}")
file(CREATE_LINK "${YOKE_FMT_INCLUDE}/fmt" "${YOKE_FMT_FIRST}/fmt" SYMBOLIC)

# What our public headers show (fmt, json) and what the libraries link.
add_library(yoke_dependencies INTERFACE)
add_library(yoke::dependencies ALIAS yoke_dependencies)
set_target_properties(yoke_dependencies PROPERTIES EXPORT_NAME dependencies)
target_link_libraries(yoke_dependencies INTERFACE fmt::fmt nlohmann_json::nlohmann_json ZLIB::ZLIB OpenSSL::Crypto Threads::Threads
  $<BUILD_INTERFACE:${YOKE_ZSTD_LIBRARY}> $<INSTALL_INTERFACE:zstd>)
foreach(_path IN ITEMS ${YOKE_ZSTD_INCLUDE} ${YOKE_TOMLPP_INCLUDE} ${YOKE_CLI11_INCLUDE} ${YOKE_XXHASH_INCLUDE})
  if(NOT _path STREQUAL "/usr/include")
    target_include_directories(yoke_dependencies SYSTEM INTERFACE $<BUILD_INTERFACE:${_path}>)
  endif()
endforeach()
if(YOKE_WITH_IMAGES)
  target_link_libraries(yoke_dependencies INTERFACE
    $<BUILD_INTERFACE:${JPEG_LIBRARIES}> $<INSTALL_INTERFACE:jpeg> $<BUILD_INTERFACE:PNG::PNG> $<INSTALL_INTERFACE:png>)
endif()
