#include "yoke/report/table.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::report {
namespace {

TEST(Table, AlignsTextLeftAndNumbersRight) {
  Table table({"model", "batch", "samples/s"});
  table.add({"lenet", "64", "9,087"});
  table.add({"gpt2", "8", "-"});
  EXPECT_EQ(table.to_text(),
            "model  batch  samples/s\n"
            "-----  -----  ---------\n"
            "lenet     64      9,087\n"
            "gpt2       8          -\n");
}

TEST(Table, CutsTheWidestColumnsToFit) {
  Table table({"key", "meaning"});
  table.add({"train.lr", std::string(100, 'x')});
  std::string text = table.to_text(40);
  EXPECT_EQ(text.substr(text.rfind("train.lr")), "train.lr  " + std::string(29, 'x') + "…\n");
  EXPECT_NE(table.to_text(0).find(std::string(100, 'x')), std::string::npos);
}

TEST(Table, CountsLettersNotBytes) {
  Table table({"a", "b"});
  table.add({"größe", "x"});
  table.add({"gross", "x"});
  EXPECT_EQ(table.to_text(), "a      b\n-----  -\ngröße  x\ngross  x\n");
}

TEST(Table, SurvivesAnImpossibleWidthAndNoRows) {
  Table table({"a long header", "another long header"});
  EXPECT_EQ(table.to_text(1), "a lon…  anoth…\n------  ------\n");
}

TEST(Table, RefusesRowsOfAnotherLength) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add({"only one"}), Error);
}

}  // namespace
}  // namespace yoke::report
