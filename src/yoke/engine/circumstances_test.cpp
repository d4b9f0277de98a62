#include "yoke/engine/circumstances.h"

#include <gtest/gtest.h>

namespace yoke::engine {
namespace {

TEST(Circumstances, NamesWhatChangedAndNothingElse) {
  nlohmann::json now = {{"device", "H200"}, {"threads", 4}};
  EXPECT_EQ(changed_circumstances(now, now), "");
  EXPECT_EQ(changed_circumstances({{"device", "H200"}, {"threads", 2}}, now), "threads 4 (was 2)");
  EXPECT_EQ(changed_circumstances({{"device", "H100"}, {"threads", 2}}, now),
            "device \"H200\" (was \"H100\"), threads 4 (was 2)");
}

TEST(Circumstances, WhatAnOlderCheckpointLacksIsNotCompared) {
  EXPECT_EQ(changed_circumstances(nullptr, {{"threads", 4}}), "");
  EXPECT_EQ(changed_circumstances({{"device", "H200"}}, {{"threads", 4}}), "");
}

}  // namespace
}  // namespace yoke::engine
