#include "yoke/data/formats/images/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/data/formats/images/test_pictures.h"

namespace yoke::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> names_in(const std::string& tar) {
  std::vector<std::string> names;
  for (const TarEntry& entry : index_tar(tar, "a.tar")) names.push_back(entry.name);
  return names;
}

std::string tar_error(const std::string& tar) {
  try {
    index_tar(tar, "a.tar");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

TEST(Tar, ListsFilesAndWhereTheyLie) {
  const std::string tar = tar_entry("cat/", "", '5') + tar_entry("cat/1.jpg", "meow") +
                          tar_entry("cat/link", "", '2') + tar_entry("./dog/2.jpg", std::string(513, 'w')) +
                          kTarEnd;
  const std::vector<TarEntry> entries = index_tar(tar, "a.tar");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "cat/1.jpg");
  EXPECT_EQ(tar.substr(entries[0].offset, entries[0].size), "meow");
  EXPECT_EQ(entries[1].name, "dog/2.jpg");
  EXPECT_EQ(tar.substr(entries[1].offset, entries[1].size), std::string(513, 'w'));
}

TEST(Tar, ReadsLongNamesOfGnuAndPax) {
  const std::string name = "cat/" + std::string(150, 'x') + ".jpg";
  const std::string gnu = tar_entry("././@LongLink", name + '\0', 'L') + tar_entry("short", "1");
  const std::string posix =
      tar_entry("pax", pax("mtime", "1.5") + pax("path", name), 'x') + tar_entry("short", "1");
  EXPECT_THAT(names_in(gnu + tar_entry("next", "2") + kTarEnd), testing::ElementsAre(name, "next"));
  EXPECT_THAT(names_in(posix + tar_entry("next", "2") + kTarEnd), testing::ElementsAre(name, "next"));
}

TEST(Tar, EndsAtTwoEmptyBlocksOrWithTheFile) {
  EXPECT_THAT(names_in(tar_entry("a", "1") + kTarEnd + "rubbish"), testing::ElementsAre("a"));
  EXPECT_THAT(names_in(tar_entry("a", "1")), testing::ElementsAre("a"));
  EXPECT_THAT(names_in(""), testing::IsEmpty());
}

TEST(Tar, RefusesADamagedHeaderAndNamesItsPlace) {
  std::string tar = tar_entry("a", "1") + tar_entry("b", "2") + kTarEnd;
  tar[1024 + 3] ^= 1;
  EXPECT_THAT(tar_error(tar), AllOf(HasSubstr("a.tar, byte 1024"), HasSubstr("checksum")));
}

TEST(Tar, RefusesAnArchiveThatEndsEarly) {
  const std::string tar = tar_entry("a", std::string(2000, 'x'));
  for (size_t length : {300u, 511u, 600u, 2000u})
    EXPECT_THAT(tar_error(tar.substr(0, length)), HasSubstr("the archive ends")) << length;
}

TEST(Tar, RefusesSizesBeyondTheArchive) {
  std::string header = tar_header("a", 0);
  EXPECT_THAT(tar_error(tar_header("a", 077777777777) + kTarEnd), HasSubstr("but the archive ends"));
  EXPECT_THAT(tar_error(tar_entry("pax", pax("size", "99999999999999999999"), 'x') + header),
              HasSubstr("no error"));
  EXPECT_THAT(tar_error(tar_entry("pax", pax("size", "9999999"), 'x') + header),
              HasSubstr("but the archive ends"));
}

TEST(Tar, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../a.jpg", "cat/../../a.jpg", "/etc/a.jpg", "cat/.."})
    EXPECT_THAT(tar_error(tar_entry(name, "1")), AllOf(HasSubstr(name), HasSubstr("outside"))) << name;
  EXPECT_THAT(names_in(tar_entry("cat/..a.jpg", "1")), testing::ElementsAre("cat/..a.jpg"));
}

TEST(Tar, RefusesCompressedAndSparseArchives) {
  EXPECT_THAT(tar_error("\x1F\x8B then gzip"), HasSubstr("compressed"));
  EXPECT_THAT(tar_error(tar_entry("a", "1", 'S')), HasSubstr("sparse"));
  EXPECT_THAT(tar_error(tar_entry("pax", "9 path=", 'x') + tar_entry("a", "1")), HasSubstr("pax"));
}

}  // namespace
}  // namespace yoke::data
