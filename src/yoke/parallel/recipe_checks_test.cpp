#include "yoke/parallel/recipe_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Recipe {
  const char* sync;
  void (*set)(optim::OptimizerOptions& options);
  const char* key;
  const char* why;
};

TEST(RecipeChecks, RefuseWhatServersAndAveragesCannotDo) {
  const Recipe cases[] = {
      {"ps", [](auto& o) { o.groups = "[{match = \"*\", lr = 2}]"; }, "train.groups", "knows no names"},
      {"ps", [](auto& o) { o.decay_biases = false; }, "train.decay_biases = false", "knows no names"},
      {"ps", [](auto& o) { o.optimizer = "lars"; }, "train.optimizer = \"lars\"", "cut through layers"},
      {"ps", [](auto& o) { o.optimizer = "lamb"; }, "train.optimizer = \"lamb\"", "cut through layers"},
      {"ps", [](auto& o) { o.ema = 0.9; }, "train.ema = 0.9", "does not see every version"},
      {"average", [](auto& o) { o.ema = 0.9; }, "train.ema = 0.9", "replicas differ"},
  };
  for (const Recipe& one : cases) {
    Choices choices;
    optim::OptimizerOptions options;
    one.set(options);
    EXPECT_NO_THROW(check_recipe(choices, options)) << one.key;
    choices.parallel.sync = one.sync;
    EXPECT_THAT(
        [&] { check_recipe(choices, options); },
        ThrowsMessage<ConfigError>(AllOf(HasSubstr(one.key), HasSubstr(one.why), HasSubstr("allreduce"))));
  }
}

TEST(RecipeChecks, TakeWhatAnyReplicaCanDo) {
  for (const char* optimizer : {"lars", "lamb", "lion"}) {
    Choices choices;
    choices.parallel.sync = "average";
    optim::OptimizerOptions options;
    options.optimizer = optimizer;
    options.groups = "[{match = \"*\", lr = 2}]";
    EXPECT_NO_THROW(check_recipe(choices, options));
  }
  Choices served;
  served.parallel.sync = "ps";
  EXPECT_NO_THROW(check_recipe(served, {.optimizer = "lion"}));
}

}  // namespace
}  // namespace yoke::parallel
