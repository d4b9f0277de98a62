#include "yoke/data/formats/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string idx_error(const std::string& bytes, size_t dims) {
  try {
    parse_idx(bytes, dims, "f.idx");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

const std::string kTwoByThree = "\0\0\x08\x02\0\0\0\x02\0\0\0\x03"s;

TEST(Idx, GivesShapeAndValues) {
  const std::string bytes = kTwoByThree + "abcdef";
  const IdxArray array = parse_idx(bytes, 2, "f.idx");
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_EQ(array.values, "abcdef");
}

TEST(Idx, RefusesAHeaderThatEndsEarly) {
  for (size_t cut = 0; cut < kTwoByThree.size(); ++cut) {
    EXPECT_THAT(idx_error(kTwoByThree.substr(0, cut), 2),
                HasSubstr(fmt::format("f.idx, byte {}: the file ends", cut)));
  }
}

TEST(Idx, RefusesAForeignFile) {
  EXPECT_THAT(idx_error("\x1f\x8b\x08\0\0\0\0\0"s, 1), HasSubstr("byte 0: expected two zero bytes"));
  EXPECT_THAT(idx_error("\0\0\x0d\x01\0\0\0\x01zzzz"s, 1),
              HasSubstr("byte 2: expected IDX type 0x08 (unsigned bytes), found 0x0d"));
  EXPECT_THAT(idx_error(kTwoByThree + "abcdef", 1),
              HasSubstr("byte 3: expected an IDX array of 1 dimensions, found 2"));
}

TEST(Idx, RefusesValuesTooFewOrTooMany) {
  EXPECT_THAT(idx_error(kTwoByThree + "abcde", 2),
              AllOf(HasSubstr("byte 17"), HasSubstr("declares 6 values, but the file has 5")));
  EXPECT_THAT(idx_error(kTwoByThree + "abcdefg", 2), HasSubstr("declares 6 values, but the file has 7"));
}

TEST(Idx, RefusesSizesThatOverflowOrAreZero) {
  const std::string most = "\xff\xff\xff\xff"s;
  EXPECT_THAT(idx_error("\0\0\x08\x03"s + most + most + most, 3),
              HasSubstr("byte 12: the sizes in the IDX header overflow"));
  // 2^31 x 2^31 x 4 wraps to 0, the number of values that follow.
  const std::string half = "\x80\0\0\0"s;
  EXPECT_THAT(idx_error("\0\0\x08\x03"s + half + half + "\0\0\0\x04"s, 3), HasSubstr("overflow 64 bits"));
  EXPECT_THAT(idx_error("\0\0\x08\x02\0\0\0\x02\0\0\0\0"s, 2),
              HasSubstr("byte 8: dimension 1 of the IDX array is 0"));
}

}  // namespace
}  // namespace yoke::data
