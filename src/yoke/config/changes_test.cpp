#include "yoke/config/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Options {
  double lr = 0.05;
  std::string name = "a = b";
  std::vector<int64_t> sizes = {1, 2};
};
void describe(Fields& f, Options& o) {
  f.number("lr", o.lr, "");
  f.text("name", o.name, "");
  f.integers("sizes", o.sizes, "");
}

TEST(Changes, ListsKeysWithBothValues) {
  Options train, out;
  Schema schema;
  schema.section("train", train);
  schema.section("out", out);
  const std::string saved = schema.to_toml();
  EXPECT_THAT(changed_keys(saved, schema, {}), IsEmpty());
  EXPECT_EQ(values_of(saved).at("train.name"), "\"a = b\"");
  train.lr = 0.1;
  train.sizes = {1, 3};
  out.lr = 7;
  EXPECT_THAT(changed_keys(saved, schema, {"out"}),
              ElementsAre("train.lr 0.05 -> 0.1", "train.sizes [1, 2] -> [1, 3]"));
  EXPECT_THAT(changed_keys(saved, schema, {"out.lr", "train.sizes"}), ElementsAre("train.lr 0.05 -> 0.1"));
}

TEST(Changes, PassesOverWhatAnotherVersionWrote) {
  Options train;
  Schema schema;
  schema.section("train", train);
  EXPECT_THAT(changed_keys("[train]\nold = 3\nlr = 0.2\n[gone]\nx = 1\nno line at all\n", schema, {}),
              ElementsAre("train.lr 0.2 -> 0.05"));
  EXPECT_THAT(changed_keys("", schema, {}), IsEmpty());
}

}  // namespace
}  // namespace yoke::config
