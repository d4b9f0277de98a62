#include "yoke/checkpoint/format/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/safetensors.h"
#include "yoke/checkpoint/format/test_folder.h"

namespace yoke::checkpoint::format {
namespace {

using testing::HasSubstr;

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TestFolder folder;
  float weights[6] = {1, 2, 3, 4, 5, 6};
  int64_t steps = 7;
  bool flags[3] = {true, false, true};
  auto written = write_safetensors(folder / "w",
                                   {{"flags", DType::kBool, {3}, flags, 3},
                                    {"weights", DType::kF32, {2, 3}, weights, sizeof weights},
                                    {"steps", DType::kI64, {}, &steps, 8},
                                    {"none", DType::kF32, {0, 4}, nullptr, 0}},
                                   {{"format", "pt"}});
  std::string file = read_file(folder / "w");
  EXPECT_EQ(written.bytes, file.size());
  EXPECT_EQ(written.digest, digest_of(file));
  auto header = parse_header(file, file.size(), "w");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].name, "steps");
  EXPECT_EQ(header.tensors[3].name, "flags");
  EXPECT_EQ(header.data_offset % 8, 0u);
  for (const TensorEntry& t : header.tensors) EXPECT_EQ(t.begin % size_of(t.dtype), 0u) << t.name;
  EXPECT_EQ(std::memcmp(file.data() + header.data_offset + header.tensors[2].begin, weights, sizeof weights),
            0);
}

TEST(SafetensorsWriter, WritesLargeFilesFromAnyPlaceInMemory) {
  TestFolder folder;
  constexpr uint64_t kBytes = (9 << 20) + 12345;  // more than two chunks and no multiple of a block
  std::vector<char> memory(2 * kBytes + 8192);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 2654435761u >> 13);
  char* page = memory.data() + (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096);
  // Neighbours from a page's beginning (written in place), neighbours from elsewhere, and strangers.
  struct Case {
    const char *a, *b;
  };
  for (Case c : {Case{page, page + kBytes}, Case{page + 1, page + 1 + kBytes}, Case{page, page + 77},
                 Case{page + kBytes, page}}) {
    auto shape = std::vector<int64_t>{static_cast<int64_t>(kBytes)};
    auto written = write_safetensors(
        folder / "w", {{"b", DType::kU8, shape, c.b, kBytes}, {"a", DType::kU8, shape, c.a, kBytes}});
    std::string file = read_file(folder / "w");
    auto header = parse_header(file, file.size(), "w");
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.data_offset % 4096, 0u);
    EXPECT_EQ(std::memcmp(file.data() + header.data_offset, c.a, kBytes), 0);
    EXPECT_EQ(std::memcmp(file.data() + header.data_offset + kBytes, c.b, kBytes), 0);
    EXPECT_EQ(written.digest, digest_of(file));
    EXPECT_EQ(written.bytes, file.size());
  }
}

TEST(SafetensorsWriter, RefusesTensorsThatNoReaderWouldTake) {
  TestFolder folder;
  int64_t x = 0;
  EXPECT_THROW(write_safetensors(folder / "w", {{"a", DType::kF32, {3}, &x, 8}}), Error);
  EXPECT_THROW(write_safetensors(folder / "w", {{"__metadata__", DType::kI64, {}, &x, 8}}), Error);
  EXPECT_THROW(
      write_safetensors(folder / "w", {{"a", DType::kI64, {}, &x, 8}, {"a", DType::kF32, {2}, &x, 8}}),
      Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "w"));
}

TEST(SafetensorsWriter, NamesThePathWhereItCannotWrite) {
  int64_t x = 0;
  try {
    write_safetensors("/nowhere/w.safetensors", {{"a", DType::kI64, {}, &x, 8}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/w.safetensors: cannot create: No such file"));
  }
}

TEST(SafetensorsWriter, ReportsAFullDiskWithTheFreeSpace) {
  std::vector<char> data(1 << 20);
  try {
    write_safetensors("/dev/full", {{"a", DType::kU8, {1 << 20}, data.data(), data.size()}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full: cannot write at byte 0: No space left on device ("));
    EXPECT_THAT(error.what(), HasSubstr("free on the disk"));
  }
}

TEST(SafetensorsWriter, ReportsAFileThatMayNotGrowFurther) {
  TestFolder folder;
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::vector<char> data(1 << 20);
    try {
      write_safetensors(folder / "w", {{"a", DType::kU8, {1 << 20}, data.data(), data.size()}});
    } catch (const ConfigError& error) {
      ::_exit(std::string(error.what()).find("File too large") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Digest, EqualsTheReferenceValues) {
  EXPECT_EQ(digest_of(""), "99aa06d3014798d86001c324468d497f");
  Digest pieces;
  pieces.update("ab", 2);
  pieces.update("c", 1);
  EXPECT_EQ(pieces.hex(), digest_of("abc"));
  EXPECT_EQ(pieces.hex(), "06b05ab6733a618578af5f94892f3950");
  EXPECT_TRUE(is_digest(pieces.hex()));
  EXPECT_FALSE(is_digest("06B05AB6733A618578AF5F94892F3950"));
}

}  // namespace
}  // namespace yoke::checkpoint::format
