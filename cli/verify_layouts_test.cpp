#include "cli/verify_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::cli {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& layouts) {
  CommandLine line;
  line.verify.file = YOKE_SOURCE_DIR "/configs/mlp_tiny.toml";
  line.verify.layouts = layouts;
  try {
    layout_configurations(line);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Every text is layouts or an error of ours.
TEST(VerifyLayouts, AnyTextIsLayoutsOrAnErrorInOurWords) {
  const std::vector<std::string> words = {
      "data", "=", ",",     ";",   "2",  "pipeline", "zero", "sync",
      "ps",   " ", "split", "8:4", "\"", "\xff",     "-1",   "99999999999999999999",
      "k",    "\n"};
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto left = random.below(9); left > 0; --left) text += words[random.below(words.size())];
    try {
      for (const Layout& layout : parse_layouts(text)) EXPECT_FALSE(layout.overrides.empty()) << text;
    } catch (const ConfigError&) {
    }
  }
}

TEST(VerifyLayouts, WordsAreConfigurationKeys) {
  CommandLine line;
  line.verify.file = YOKE_SOURCE_DIR "/configs/mlp_tiny.toml";
  line.verify.layouts =
      "data=2,zero=1; pipeline=2,data=2,schedule=gpipe,microbatches=4; data=4,sync=threads,accumulate=2; "
      "data=2,sync=ps,servers=3,policy=k_async,k=1; partition=auto; partition=auto,pipeline=3,data=2";
  auto layouts = layout_configurations(line);
  ASSERT_EQ(layouts.size(), 6u);
  EXPECT_EQ(layouts[0]->configuration.values.parallel.zero, 1);
  EXPECT_EQ(layouts[0]->ranks, 2);
  EXPECT_EQ(layouts[1]->ranks, 4);
  EXPECT_EQ(layouts[1]->copies, 2);
  EXPECT_EQ(layouts[1]->configuration.values.pipeline.schedule, "gpipe");
  EXPECT_EQ(layouts[2]->ranks, 1);
  EXPECT_EQ(layouts[2]->copies, 4);
  EXPECT_EQ(layouts[2]->configuration.values.train.loop.accumulate, 2);
  EXPECT_EQ(layouts[3]->configuration.values.ps.servers, 3);
  EXPECT_EQ(layouts[4]->ranks, 2);
  EXPECT_EQ(layouts[5]->ranks, 6);
  EXPECT_EQ(layouts[5]->copies, 2);
}

// `train` refuses the same, by the same code.
TEST(VerifyLayouts, WhatTrainCannotRunIsRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {"pipeline=2,data=2,zero=2,sync=ps,servers=2", "parallel.zero cannot be combined with parallel.sync"},
      {"pipeline=2,zero=1", "one replica"},
      {"partition=auto,zero=1", "one replica"},
      {"partition=auto,tensor=2", "parallel.partition cannot be combined with parallel.tensor"},
      {"partition=auto,data=2,zero=3", "parallel.zero"},
      {"partition=auto,sync=ps,servers=2", "parallel.partition cannot be combined with parallel.sync"},
      {"partition=auto,microbatches=4", "pipeline.microbatches"},
      {"partition=no_such_file.json", "no_such_file.json"},
      {"tensor=2,zero=1", "one replica"},
      {"pipeline=2,sync=ps,schedule=2bw", "parallel.sync"},
      {"pipeline=2,split=3:1", "parallel.split"},
      {"data=2,sync=threads,zero=1", "parallel.zero"},
      {"data=2,sync=ps,zero=1", "parallel.zero"},
      {"data=2,sync=ps,policy=k_async", "needs ps.k"},
      {"data=2,sync=ps,policy=k_sync,k=3", "k = 3 with 2 workers"},
      {"zero=1", "parallel.zero"},
      {"data=2,servers=2", "ps.servers"},
      {"data=2,policy=sync", "ps.policy"},
      {"data=2,sync=ps,k=2", "ps.k"},
      {"data=2,microbatches=4", "pipeline.microbatches"},
      {"data=2,schedule=1f1b", "pipeline.schedule"},
      {"pipeline=2,chunks=2", "pipeline.chunks"},
      {"pipeline=2,vertical_sync=1", "pipeline.vertical_sync"},
      {"data=2,split=speed", "split=speed"},
      {"data=3", "cannot be divided into 3"},
      {"data=2,data=4", "is given twice"},
      {"data=0", "invalid"},
      {"data=-1", "invalid"},
      {"data", "invalid"},
      {"zero=4", "invalid"},
      {"expert=2", "invalid"},
      {"data=2,tensor=2,zero=1,sync=ps", "cannot be combined with parallel.sync"},
      {"data=2,offload=all", "parallel.offload"},
      {"data=2,sequence=true", "parallel.sequence"},
      {"", "no layout"},
  };
  for (const auto& [layout, says] : refused) EXPECT_THAT(refusal_of(layout), HasSubstr(says)) << layout;
}

}  // namespace
}  // namespace yoke::cli
