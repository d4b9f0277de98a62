// For tests: folders that start empty and are gone when the program ends.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace yoke::metrics {

// An empty folder of the running test.
inline std::filesystem::path fresh_folder() {
  struct Root {
    std::filesystem::path path =
        std::filesystem::path(::testing::TempDir()) / ("yoke-tests-" + std::to_string(::getpid()));
    ~Root() {
      std::error_code none;
      std::filesystem::remove_all(path, none);
    }
  };
  static const Root root;
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::filesystem::path folder = root.path / (std::string(info->test_suite_name()) + "." + info->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace yoke::metrics
