#include "yoke/checkpoint/format/piece_name.h"

#include <gtest/gtest.h>

namespace yoke::checkpoint {
namespace {

TEST(PieceName, IsReadAsWritten) {
  PieceAt at{.shape = {768, 2304}, .dim = 1, .ranges = {{0, 384}, {768, 384}}, .begin = 10, .end = 20};
  std::optional<NamedPiece> piece = parse_piece_name(piece_name("exp_avg/c_attn.weight", at));
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->whole, "exp_avg/c_attn.weight");
  EXPECT_EQ(piece->at.shape, at.shape);
  EXPECT_EQ(piece->at.ranges, at.ranges);
  EXPECT_EQ(piece->at.begin, 10);
  EXPECT_EQ(piece->at.end, 20);
}

TEST(PieceName, OfAWholeTensorIsItsOwn) {
  EXPECT_EQ(piece_name("weight", {.shape = {3}}), "weight");
  EXPECT_FALSE(parse_piece_name("weight"));
  EXPECT_FALSE(parse_piece_name("a@b"));
}

TEST(PieceName, OutsideItsTensorIsNone) {
  for (const char* name :
       {"w@shape=4x4@slice=2,0,1", "w@shape=4x4@slice=1,3,2", "w@shape=4x4@slice=1,0,3,3,2",
        "w@shape=4x4@0:17", "w@shape=4x4@slice=0,0,2@0:9", "w@shape=0x4@slice=0,0,1",
        "w@shape=4x4@slice=0,9223372036854775807,9223372036854775807",
        "w@shape=9223372036854775807x9223372036854775807@0:1"})
    EXPECT_FALSE(parse_piece_name(name)) << name;
}

TEST(PieceName, OfAnOlderVersionHasNoShape) {
  std::optional<NamedPiece> piece = parse_piece_name("exp_avg/w@128:4096");
  ASSERT_TRUE(piece);
  EXPECT_TRUE(piece->at.shape.empty());
}

}  // namespace
}  // namespace yoke::checkpoint
