#include "cli/verify_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

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

TEST(VerifyLayouts, WordsAreConfigurationKeys) {
  CommandLine line;
  line.verify.file = YOKE_SOURCE_DIR "/configs/mlp_tiny.toml";
  line.verify.layouts =
      "data=2,zero=1; pipeline=2,data=2,schedule=gpipe,microbatches=4; data=4,sync=threads,accumulate=2; "
      "data=2,sync=ps,servers=3,policy=k_async,k=1";
  auto layouts = layout_configurations(line);
  ASSERT_EQ(layouts.size(), 4u);
  EXPECT_EQ(layouts[0]->configuration.values.parallel.zero, 1);
  EXPECT_EQ(layouts[0]->ranks, 2);
  EXPECT_EQ(layouts[1]->ranks, 4);
  EXPECT_EQ(layouts[1]->copies, 2);
  EXPECT_EQ(layouts[1]->configuration.values.pipeline.schedule, "gpipe");
  EXPECT_EQ(layouts[2]->ranks, 1);
  EXPECT_EQ(layouts[2]->copies, 4);
  EXPECT_EQ(layouts[2]->configuration.values.train.loop.accumulate, 2);
  EXPECT_EQ(layouts[3]->configuration.values.ps.servers, 3);
}

// `train` refuses the same, by the same code.
TEST(VerifyLayouts, WhatTrainCannotRunIsRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {"pipeline=2,data=2,zero=2,sync=ps,servers=2", "parallel.zero = 2 does not go with a pipeline"},
      {"pipeline=2,sync=ps", "parallel.sync"},
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
      {"data=3", "cannot be cut into 3"},
      {"data=2,data=4", "comes twice"},
      {"data=0", "not understood"},
      {"data=-1", "not understood"},
      {"data", "not understood"},
      {"zero=3", "not understood"},
      {"tensor=2", "not understood"},
      {"", "no layout"},
  };
  for (const auto& [layout, says] : refused) EXPECT_THAT(refusal_of(layout), HasSubstr(says)) << layout;
}

}  // namespace
}  // namespace yoke::cli
