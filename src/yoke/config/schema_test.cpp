#include "yoke/config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/config/arguments.h"

namespace yoke::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct TrainLike {
  double lr = 0.05;
  int64_t steps = 10;
  bool shuffle = true;
  std::string optimizer = "sgd";
  std::vector<int64_t> sizes = {1, 2};
  int64_t bucket = 0;
};

void describe(Fields& f, TrainLike& o) {
  f.number("lr", o.lr, "learning rate");
  f.integer("steps", o.steps, "steps", 1);
  f.boolean("shuffle", o.shuffle, "shuffle");
  f.choice("optimizer", o.optimizer, {"sgd", "adamw"}, "optimizer");
  f.integers("sizes", o.sizes, "sizes");
  f.bytes("bucket", o.bucket, "bucket");
}

struct Fixture {
  TrainLike options;
  Schema schema;
  Fixture() { schema.section("train", options); }
  std::string error_of(const std::string& toml) {
    try {
      schema.read_text(toml, "a.toml");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

TEST(Schema, FileSetsValuesAndRemembersWhere) {
  Fixture f;
  f.schema.read_text("[train]\nlr = 0.1\nsizes = [7, 8]\nbucket = \"25MB\"\n", "a.toml");
  EXPECT_EQ(f.options.lr, 0.1);
  EXPECT_THAT(f.options.sizes, ElementsAre(7, 8));
  EXPECT_EQ(f.options.bucket, 25'000'000);
  EXPECT_EQ(f.schema.at("train.lr").origin, "a.toml:2");
  EXPECT_EQ(f.schema.at("train.steps").origin, "built-in");
}

TEST(Schema, ANameOfHabitFindsItsKey) {
  Fixture f;
  for (const char* typed : {"lr", "train.lrr", "trian.lr", "learning_rate", "train.learning_rate",
                            "train.learning-rate", "data.lr", "lerning_rate", "train.lerning_rate"})
    EXPECT_EQ(f.schema.nearest_key(typed), "train.lr") << typed;
  EXPECT_EQ(f.schema.nearest_key("max-steps"), "train.steps");
  EXPECT_EQ(f.schema.nearest_key("batch"), "");  // this schema has no data.batch_size
  EXPECT_EQ(f.schema.nearest_key("frobnicate"), "");
}

TEST(Schema, ATextWithoutQuotesIsToldSo) {
  Fixture f;
  EXPECT_THAT(f.error_of("[train]\noptimizer = sgd # as ever\n"), HasSubstr("a.toml:2: not valid TOML: "));
  EXPECT_THAT(f.error_of("[train]\noptimizer = sgd # as ever\n"),
              HasSubstr("Strings need quotes: optimizer = \"sgd\"."));
  EXPECT_THAT(f.error_of("[train]\nlr = 1\nlr = 2\n"), ::testing::Not(HasSubstr("quotes")));
}

TEST(Schema, AnIntegerIsFineWhereANumberIsWanted) {
  Fixture f;
  f.schema.read_text("[train]\nlr = 1\n", "a.toml");
  EXPECT_EQ(f.options.lr, 1.0);
}

TEST(Schema, UnknownKeyNamesFileLineAndNearestName) {
  Fixture f;
  EXPECT_THAT(f.error_of("[train]\nstep = 3\n"),
              HasSubstr("a.toml:2: unknown key `train.step`. Did you mean `train.steps`?"));
  EXPECT_THAT(f.error_of("[trian]\nlr = 3\n"), HasSubstr("Did you mean `train.lr`?"));
  EXPECT_THAT(f.error_of("zzz = 3\n"), HasSubstr("unknown key `zzz`"));
}

TEST(Schema, WrongTypesSayWhatIsAccepted) {
  Fixture f;
  EXPECT_THAT(f.error_of("[train]\nlr = \"fast\"\n"),
              HasSubstr("train.lr = \"fast\": expected a number of at least 0"));
  EXPECT_THAT(f.error_of("[train]\nsteps = 0\n"), HasSubstr("an integer of at least 1"));
  EXPECT_THAT(f.error_of("[train]\nsteps = 1.5\n"), HasSubstr("an integer"));
  EXPECT_THAT(f.error_of("[train]\noptimizer = \"adam\"\n"),
              HasSubstr("one of sgd, adamw (did you mean adamw?)"));
  EXPECT_THAT(f.error_of("[train]\nsizes = [1, \"x\"]\n"), HasSubstr("integers"));
  EXPECT_THAT(f.error_of("[train]\nlr = 2020-01-01\n"), HasSubstr("table or a date"));
  EXPECT_THAT(f.error_of("[train\n"), HasSubstr("a.toml:1: not valid TOML"));
}

TEST(Schema, LettersBeyondAsciiBelongInQuotesAndComments) {
  Fixture f;
  EXPECT_EQ(f.error_of("# \u00fc\n[train]\nlr = 0.1  # \u00e9\n"), "");
  EXPECT_THAT(f.error_of("[train]\nJ\xef\xbb\xb6"), HasSubstr("a.toml:2: not valid TOML"));
  EXPECT_THAT(f.error_of("[train]\noptimizer = \"\u00fc\"\n"), HasSubstr("one of sgd, adamw"));
}

TEST(Schema, TextReadsBackAsTheSameConfiguration) {
  Fixture f;
  f.schema.read_text("[train]\nlr = 3e-4\nshuffle = false\nsizes = []\n", "a.toml");
  Fixture g;
  g.schema.read_text(f.schema.to_toml(), "b.toml");
  EXPECT_EQ(g.options.lr, 3e-4);
  EXPECT_FALSE(g.options.shuffle);
  EXPECT_EQ(f.schema.to_toml(), g.schema.to_toml());
}

TEST(Arguments, EveryFormIsUnderstood) {
  Fixture f;
  std::vector<std::string> words = {"file.toml",       "--train.lr", "0.3",          "--no-train.shuffle",
                                    "--train.steps=7", "--set",      "train.lr=0.4", "--json",
                                    "--train.sizes",   "3,4"};
  for (const Override& change : take_overrides(f.schema, words)) f.schema.set(change);
  EXPECT_THAT(words, ElementsAre("file.toml", "--json"));
  EXPECT_EQ(f.options.lr, 0.4);
  EXPECT_EQ(f.schema.at("train.lr").origin, "--set");
  EXPECT_FALSE(f.options.shuffle);
  EXPECT_EQ(f.options.steps, 7);
  EXPECT_THAT(f.options.sizes, ElementsAre(3, 4));
}

TEST(Arguments, ABooleanNeedsNoValue) {
  Fixture f;
  std::vector<std::string> words = {"--train.shuffle", "false", "--train.shuffle", "other"};
  auto changes = take_overrides(f.schema, words);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].value, "false");
  EXPECT_EQ(changes[1].value, "true");
  EXPECT_THAT(words, ElementsAre("other"));
}

TEST(Arguments, AMissingValueIsAnError) {
  Fixture f;
  std::vector<std::string> words = {"--train.lr"};
  EXPECT_THROW(take_overrides(f.schema, words), ConfigError);
}

}  // namespace
}  // namespace yoke::config
