#include "yoke/plan/schedules/stream.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::plan {
namespace {

std::vector<ScheduleAction> streamed(ScheduleStream& stream, int minibatches) {
  std::vector<ScheduleAction> actions;
  for (int i = 0; i < minibatches; ++i)
    for (const StreamAction& one : stream.next()) actions.push_back(one.action);
  for (const StreamAction& one : stream.drain()) actions.push_back(one.action);
  return actions;
}

void expect_same_as_one_list(ScheduleRequest request) {
  for (int minibatches : {1, 2, 3, 7, 20}) {
    request.minibatches = minibatches;
    Schedule whole = make_schedule(request);
    for (size_t worker = 0; worker < whole.workers.size(); ++worker) {
      ScheduleStream stream(request, static_cast<int>(worker));
      for (int again = 0; again < 2; ++again)  // it starts anew after a drain
        EXPECT_EQ(streamed(stream, minibatches), whole.workers[worker].actions)
            << to_string(request.kind) << ", " << minibatches << " minibatches, worker " << worker;
    }
  }
}

TEST(ScheduleStream, GivesTheWholeListInParts) {
  for (ScheduleKind kind : {ScheduleKind::kPipedream, ScheduleKind::k2BW}) {
    for (int stages : {1, 2, 4}) {
      expect_same_as_one_list({.kind = kind, .stages = stages, .microbatches = stages});
      expect_same_as_one_list({.kind = kind, .stages = stages, .microbatches = 5});
    }
  }
  expect_same_as_one_list({.kind = ScheduleKind::kPipedream, .stages = 4, .microbatches = 1});
  expect_same_as_one_list(
      {.kind = ScheduleKind::kPipedream, .stages = 3, .microbatches = 2, .vertical_sync = true});
  expect_same_as_one_list(
      {.kind = ScheduleKind::kPipedream, .stages = 2, .microbatches = 2, .replicas = {2, 1}});
}

TEST(ScheduleStream, RepeatsTheListOfASchedulesThatFlushes) {
  ScheduleRequest request{.kind = ScheduleKind::k1F1B, .stages = 2, .microbatches = 3};
  ScheduleStream stream(request, 1);
  EXPECT_EQ(stream.next(), stream.next());
  EXPECT_TRUE(stream.drain().empty());
}

// A stage keeps as many versions as the theory says: n, n-1, …, 1; two for 2bw.
int most_versions(const ScheduleRequest& request, int worker) {
  ScheduleStream stream(request, worker);
  int newest = 0, most = 1;
  std::vector<int> kept;  // besides the newest
  for (int i = 0; i < 12; ++i) {
    for (const StreamAction& one : stream.next()) {
      const ScheduleAction& action = one.action;
      bool computes = action.op == ScheduleOp::kForward || action.op == ScheduleOp::kBackward;
      if (action.op == ScheduleOp::kUpdate) {
        if (!one.last_use) kept.push_back(newest);
        newest = action.version;
      } else if (computes) {
        bool there = action.version == newest || std::count(kept.begin(), kept.end(), action.version) == 1;
        EXPECT_TRUE(there) << "version " << action.version;
        if (one.last_use) kept.erase(std::remove(kept.begin(), kept.end(), action.version), kept.end());
      }
      most = std::max(most, static_cast<int>(kept.size()) + 1);
    }
  }
  return most;
}

TEST(ScheduleStream, SaysWhenAVersionIsNotNeededAgain) {
  ScheduleRequest pipedream{.kind = ScheduleKind::kPipedream, .stages = 4, .microbatches = 2};
  for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(most_versions(pipedream, stage), 4 - stage);
  pipedream.vertical_sync = true;
  for (int stage = 0; stage < 4; ++stage) EXPECT_LE(most_versions(pipedream, stage), 4);
  ScheduleRequest two{.kind = ScheduleKind::k2BW, .stages = 4, .microbatches = 4};
  for (int stage = 0; stage < 4; ++stage) EXPECT_LE(most_versions(two, stage), 2);
}

}  // namespace
}  // namespace yoke::plan
