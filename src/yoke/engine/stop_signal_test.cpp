#include "yoke/engine/stop_signal.h"

#include <gtest/gtest.h>

#include "yoke/base/stop_signals.h"

namespace yoke::engine {
namespace {

TEST(StopSignals, EachAsksToStopAndIsNotedOnce) {
  for (int signal : kStopSignals) {
    StopSignals installed;
    EXPECT_EQ(requested_stop(), 0);
    std::raise(signal);
    EXPECT_EQ(requested_stop(), signal);
  }
  EXPECT_EQ(requested_stop(), 0);
}

TEST(StopSignals, WarningsMayComeOften) {
  StopSignals installed;
  for (int i = 0; i < 3; ++i)
    for (int signal : {SIGXCPU, SIGUSR1, SIGUSR2, SIGHUP}) std::raise(signal);
  std::raise(SIGTERM);  // of a scheduler that has warned before
  EXPECT_EQ(requested_stop(), SIGXCPU);
}

TEST(StopSignals, ASecondUrgentOneEndsTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals installed;
        std::raise(SIGINT);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignals, WhatWasIgnoredByNohupStaysIgnored) {
  auto before = std::signal(SIGHUP, SIG_IGN);
  {
    StopSignals installed;
    std::raise(SIGHUP);
    EXPECT_EQ(requested_stop(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

}  // namespace
}  // namespace yoke::engine
