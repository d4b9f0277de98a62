# cmake --install: programs, libraries, headers, and a package for find_package(yoke).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/yoke")
install(TARGETS yoke RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS yoke_core yoke_cli yoke_dependencies EXPORT yokeCoreTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT yokeCoreTargets NAMESPACE yoke:: DESTINATION ${_package})
if(YOKE_TORCH)
  install(TARGETS yoke-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The program finds the LibTorch it was built with.
  set_target_properties(yoke-torch PROPERTIES INSTALL_RPATH "${LibTorch_ROOT}/lib")
  install(TARGETS yoke_torch yoke_command EXPORT yokeTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT yokeTorchTargets NAMESPACE yoke:: DESTINATION ${_package})
endif()
if(YOKE_MODULES)
  install(TARGETS ${YOKE_MODULES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY src/yoke DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*_pch.h" EXCLUDE
        PATTERN "test_*.h" EXCLUDE PATTERN "*_test_*.h" EXCLUDE PATTERN "*_for_tests.h" EXCLUDE)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/yoke)

configure_package_config_file(cmake/yokeConfig.cmake.in yokeConfig.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(yokeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/yokeConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/yokeConfigVersion.cmake"
              cmake/FindLibTorch.cmake cmake/Cuda.cmake DESTINATION ${_package})
