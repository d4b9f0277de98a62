#include "yoke/checkpoint/format/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/test_folder.h"

namespace yoke::checkpoint::format {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FolderLock, TheSecondIsToldWhoHasIt) {
  TestFolder folder;
  std::optional<FolderLock> first(folder.path() / "run");
  EXPECT_THAT(
      [&] { FolderLock second(folder.path() / "run"); },
      testing::ThrowsMessage<ConfigError>(AllOf(
          HasSubstr("is in use by process " + std::to_string(::getpid()) + " on "), HasSubstr("--out.dir"))));
  first.reset();
  FolderLock third(folder.path() / "run");
}

TEST(FolderLock, EndsWithItsProcess) {
  TestFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    FolderLock held(folder.path());
    char byte = 1;
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THROW(FolderLock(folder.path()), ConfigError);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  FolderLock now(folder.path());
}

TEST(FolderLock, NamesAFolderThatCannotBeMade) {
  EXPECT_THAT([] { FolderLock lock("/proc/no/run"); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("out.dir = \"/proc/no/run\"")));
}

}  // namespace
}  // namespace yoke::checkpoint::format
