#include "yoke/ps/server_clock.h"

#include <gtest/gtest.h>

namespace yoke::ps {
namespace {

void expect_times(ServerClock& clock, double now, double receive, double apply, double wait) {
  const ServerClock::Times times = clock.times(now);
  EXPECT_DOUBLE_EQ(times.receive, receive);
  EXPECT_DOUBLE_EQ(times.apply, apply);
  EXPECT_DOUBLE_EQ(times.wait, wait);
}

TEST(ServerClock, DividesTheTimeFromStartToStop) {
  ServerClock clock(3);
  clock.handling(0, 1);  // before training
  clock.handled(2);
  clock.start(10);
  clock.arrives(0, 11);
  clock.arrives(1, 12);   // two at a time count once
  clock.handling(0, 14);  // the other one still arrives
  clock.handled(15);
  expect_times(clock, 16, 4, 1, 1);
  clock.handling(1, 17);
  clock.handled(19);
  clock.stop(20);
  expect_times(clock, 30, 5, 3, 2);
  clock.start(40);
  expect_times(clock, 50, 5, 3, 2);
}

TEST(ServerClock, APeerLostInAPayloadEndsIt) {
  ServerClock clock(2);
  clock.start(0);
  clock.arrives(1, 1);
  clock.arrives(1, 2);
  clock.lost(1, 3);
  clock.lost(1, 4);
  expect_times(clock, 5, 2, 0, 3);
}

}  // namespace
}  // namespace yoke::ps
