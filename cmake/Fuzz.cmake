# One libFuzzer program for each *_fuzz.cpp in src/yoke. Parsers are torch-free, so that these build in seconds.
file(GLOB_RECURSE _fuzz_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/yoke/*_fuzz.cpp")
foreach(_source IN LISTS _fuzz_sources)
  get_filename_component(_name "${_source}" NAME_WE)
  add_executable(${_name} "${_source}")
  target_compile_options(${_name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${_name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${_name} PRIVATE yoke::core yoke::build_flags)
endforeach()
