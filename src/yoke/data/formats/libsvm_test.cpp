#include "yoke/data/formats/libsvm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string libsvm_error(std::string_view text, int64_t features = 100) {
  try {
    parse_libsvm(text, features, "f.txt");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Libsvm, GivesCompressedRows) {
  const SparseRows rows = parse_libsvm("1 1:0.5 3:-2e1\n0\n1 100:+7", 100, "f.txt");
  EXPECT_THAT(rows.labels, ElementsAre(1, 0, 1));
  EXPECT_THAT(rows.offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(rows.indices, ElementsAre(0, 2, 99));
  EXPECT_THAT(rows.values, ElementsAre(0.5f, -20.f, 7.f));
}

TEST(Libsvm, MapsLabelsOneAndTwo) {
  EXPECT_THAT(parse_libsvm("1 1:1\n2 1:1\n1", 1, "f").labels, ElementsAre(0, 1, 0));
  EXPECT_THAT(parse_libsvm("1 1:1\n1 1:1\n2", 1, "f", 2).labels,
              ElementsAre(0, 0));  // the limit changes nothing
  EXPECT_THAT(parse_libsvm("1 1:1\n1 1:1", 1, "f").labels, ElementsAre(1, 1));
  EXPECT_THAT(libsvm_error("1 1:1\n2 2:1\n0 3:1"), HasSubstr("f.txt:3, byte 12: labels 2 and 0 in one file"));
}

TEST(Libsvm, TakesBothKindsOfLabelsButNotMixed) {
  EXPECT_THAT(parse_libsvm("+1 1:1\n-1 1:1\n-1", 1, "f").labels, ElementsAre(1, 0, 0));
  EXPECT_THAT(parse_libsvm("1.0 1:1\n0.0 1:1", 1, "f").labels, ElementsAre(1, 0));
  EXPECT_THAT(libsvm_error("1 1:1\n0 2:1\n-1 3:1"),
              HasSubstr("f.txt:3, byte 12: labels 0 and -1 in one file"));
}

TEST(Libsvm, SkipsBlanksCommentsAndEmptyLines) {
  const SparseRows rows = parse_libsvm("# head\n\n  1\t2:3  # tail 9:9\r\n\r\n0 1:1 \n", 100, "f.txt");
  EXPECT_THAT(rows.labels, ElementsAre(1, 0));
  EXPECT_THAT(rows.indices, ElementsAre(1, 0));
}

TEST(Libsvm, ReadsOnlyTheFirstRowsUnderALimit) {
  EXPECT_EQ(parse_libsvm("1 1:1\n0 1:1\nnonsense", 1, "f", 2).rows(), 2);
}

TEST(Libsvm, RefusesOtherLabels) {
  EXPECT_THAT(libsvm_error("3 1:1"),
              HasSubstr("f.txt:1, byte 0: expected labels 0 and 1, -1 and +1, or 1 and 2, found '3'"));
  for (const char* label : {"1:1", "nan", "inf", "0x1", "1,", "+-1", "++1", "+", "--1", "1e"}) {
    EXPECT_THAT(libsvm_error(std::string(label) + " 1:1"), HasSubstr("expected labels")) << label;
  }
}

TEST(Libsvm, RefusesBadElementsAndNamesTheirPlace) {
  EXPECT_THAT(libsvm_error("1 1:1\n1 2"), HasSubstr("f.txt:2, byte 8: expected index:value, found '2'"));
  EXPECT_THAT(libsvm_error("1 qid:3 1:1"), HasSubstr("byte 2: expected an index of at least 1"));
  for (const char* index : {"0", "-1", "", "+1", "1.5", "99999999999999999999", "0x1"}) {
    EXPECT_THAT(libsvm_error("1 " + std::string(index) + ":1"), HasSubstr("expected an index of at least 1"))
        << index;
  }
  for (const char* value : {"", "x", "1x", "nan", "inf", "-inf", "1e300", "1e999", "1:2", "0x10", "+-1"}) {
    EXPECT_THAT(libsvm_error("1 1:" + std::string(value)), HasSubstr("expected a finite number")) << value;
  }
}

TEST(Libsvm, RefusesIndicesThatDoNotAscend) {
  EXPECT_THAT(libsvm_error("1 3:1 3:2"), HasSubstr("byte 6: expected an index above 3"));
  EXPECT_THAT(libsvm_error("1 3:1 2:2"),
              HasSubstr("expected an index above 3, the one before it, found '2:2'"));
}

TEST(Libsvm, RefusesIndicesAboveTheFeatures) {
  EXPECT_EQ(libsvm_error("1 100:1"), "no error");
  EXPECT_THAT(libsvm_error("1 101:1"),
              HasSubstr("index above the model's 100 features (model.features), found '101:1'"));
  EXPECT_THAT(libsvm_error("1 2147483648:1", INT64_MAX), HasSubstr("index above"));
}

TEST(Libsvm, RefusesAFileWithoutRows) {
  EXPECT_THAT(libsvm_error(""), HasSubstr("expected at least one line"));
  EXPECT_THAT(libsvm_error("# nothing\n\n"), HasSubstr("expected at least one line"));
}

TEST(Libsvm, ShowsUnprintableBytesSafely) {
  EXPECT_THAT(libsvm_error("\x1b[31mred"), HasSubstr("found '\\x1b[31mred'"));
  EXPECT_THAT(libsvm_error(std::string(1000, 'a')), HasSubstr("found '" + std::string(24, 'a') + "…'"));
}

}  // namespace
}  // namespace yoke::data
