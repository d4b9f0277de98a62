# Compiler flags of our own code (yoke::build_flags), ccache, and a faster linker where there is one.
add_library(yoke_build_flags INTERFACE)
add_library(yoke::build_flags ALIAS yoke_build_flags)
set(_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror -Wno-unknown-pragmas -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 see ghosts in the inlined code of fmt, LibTorch and the standard library.
  list(APPEND _warnings -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict -Wno-dangling-reference)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND YOKE_SANITIZE MATCHES "thread")
  # ThreadSanitizer does not see fences. Ours order who wakes whom; data is handed over by release and acquire.
  list(APPEND _warnings -Wno-tsan)
endif()
target_compile_options(yoke_build_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_warnings}>")

if(YOKE_SANITIZE)
  # Not for nvcc, which knows neither.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${YOKE_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${YOKE_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these; the sloppiness concerns time stamps and macros only.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
find_program(MOLD_PROGRAM NAMES mold)
if(MOLD_PROGRAM AND NOT YOKE_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()
