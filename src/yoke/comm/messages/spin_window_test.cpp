#include "yoke/comm/messages/spin_window.h"

#include <gtest/gtest.h>

namespace yoke::comm::messages {
namespace {

TEST(SpinWindow, ClosesWhenSpinningIsInVainAndOpensWhenItPays) {
  SpinWindow window;
  EXPECT_EQ(window.seconds(), SpinWindow::kLongest);
  window.in_vain();
  EXPECT_EQ(window.seconds(), SpinWindow::kLongest / 2);
  window.paid();
  EXPECT_EQ(window.seconds(), SpinWindow::kLongest);
  for (int i = 0; i < 6; ++i) window.in_vain();
  EXPECT_EQ(window.seconds(), 0);
}

TEST(SpinWindow, ClosedWindowIsTriedNowAndThen) {
  SpinWindow window;
  for (int i = 0; i < 8; ++i) window.in_vain();
  int tried = 0;
  for (int i = 0; i < 10 * SpinWindow::kTryEvery; ++i) {
    tried += window.seconds() > 0 ? 1 : 0;
    window.in_vain();
  }
  EXPECT_EQ(tried, 10);
}

}  // namespace
}  // namespace yoke::comm::messages
