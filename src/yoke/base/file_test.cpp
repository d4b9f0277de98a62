#include "yoke/base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "yoke/base/error.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

TEST(WriteFileAtomically, ThreadsThatWriteTheSameFileLeaveOneOfTheirContentsWhole) {
  fs::path folder = fs::path(::testing::TempDir()) / ("yoke-file-test-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  {
    std::vector<std::jthread> threads;
    for (char letter = 'a'; letter < 'i'; ++letter)
      threads.emplace_back([&, letter] {
        for (int i = 0; i < 20; ++i)
          EXPECT_NO_THROW(write_file_atomically(folder / "file", std::string(20'000, letter)));
      });
  }
  std::string content = read_file(folder / "file");
  EXPECT_EQ(content.size(), 20'000u);
  EXPECT_TRUE(std::all_of(content.begin(), content.end(), [&](char c) { return c == content[0]; }));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "nothing is left";
  // A failure leaves nothing, either.
  fs::create_directories(folder / "taken" / "by a folder");
  EXPECT_THROW(write_file_atomically(folder / "taken", "x"), ConfigError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace yoke
