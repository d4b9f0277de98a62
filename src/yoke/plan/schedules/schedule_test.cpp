#include "yoke/plan/schedules/schedule.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

ScheduleRequest request_of(ScheduleKind kind, int stages, int microbatches) {
  ScheduleRequest request;
  request.kind = kind;
  request.stages = stages;
  request.microbatches = microbatches;
  return request;
}

constexpr ScheduleKind kAllKinds[] = {
    ScheduleKind::kNaive, ScheduleKind::kGpipe,       ScheduleKind::k1F1B, ScheduleKind::kPipedream,
    ScheduleKind::k2BW,   ScheduleKind::kInterleaved, ScheduleKind::kZbH1};

std::vector<int> versions_at_forward(const ScheduleWorker& worker) {
  std::vector<int> versions;
  for (const ScheduleAction& action : worker.actions) {
    if (action.op == ScheduleOp::kForward) versions.push_back(action.version);
  }
  return versions;
}

TEST(Schedule, EveryScheduleIsValidForManySizes) {
  for (ScheduleKind kind : kAllKinds) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int microbatches = 1; microbatches <= 13; ++microbatches) {
        for (int minibatches = 1; minibatches <= 3; ++minibatches) {
          for (int chunks = 1; chunks <= (kind == ScheduleKind::kInterleaved ? 4 : 1); ++chunks) {
            ScheduleRequest request = request_of(kind, stages, microbatches);
            request.minibatches = minibatches;
            request.chunks = chunks;
            if (kind == ScheduleKind::k2BW && microbatches < stages) continue;
            ASSERT_NO_THROW(validate(make_schedule(request)))
                << to_string(kind) << " " << stages << " stages " << microbatches << " x " << minibatches
                << ", chunks " << chunks << "\n"
                << to_string(make_schedule(request));
          }
        }
      }
    }
  }
}

TEST(Schedule, ReplicatedStagesAreValid) {
  for (ScheduleKind kind : {ScheduleKind::kNaive, ScheduleKind::kGpipe, ScheduleKind::k1F1B,
                            ScheduleKind::kPipedream, ScheduleKind::k2BW}) {
    for (std::vector<int> replicas :
         {std::vector<int>{2, 1, 1}, {7, 1}, {1, 3}, {3, 2, 1}, {2, 2, 2}, {9, 5, 1, 1}, {1, 2, 4}}) {
      for (int microbatches : {9, 16, 17, 32}) {
        ScheduleRequest request = request_of(kind, static_cast<int>(replicas.size()), microbatches);
        request.replicas = replicas;
        request.minibatches = 2;
        if (kind == ScheduleKind::k2BW && microbatches < 16) continue;
        ASSERT_NO_THROW(validate(make_schedule(request))) << to_string(kind) << " " << microbatches << "\n"
                                                          << to_string(make_schedule(request));
      }
    }
  }
}

TEST(Schedule, OneForwardOneBackwardIsWrittenAsInTheBooks) {
  EXPECT_EQ(to_string(make_schedule(request_of(ScheduleKind::k1F1B, 2, 3))),
            "stage 0.0: F0@0 send0>1 F1@0 send1>1 recv_grad0>1 B0@0 F2@0 send2>1 recv_grad1>1 B1@0 "
            "recv_grad2>1 B2@0 "
            "update2@1\n"
            "stage 1.0: recv0>0 F0@0 B0@0 send_grad0>0 recv1>0 F1@0 B1@0 send_grad1>0 recv2>0 F2@0 B2@0 "
            "send_grad2>0 "
            "update2@1\n");
}

TEST(Schedule, PipedreamForwardsSeeTheUpdatesOfTheReference) {
  // Minibatch b on stage s (both from 1) of 4 has seen max(0, b - 1 - (4 - s)) updates.
  Schedule schedule = make_schedule(request_of(ScheduleKind::kPipedream, 4, 9));
  for (int stage = 0; stage < 4; ++stage) {
    std::vector<int> versions = versions_at_forward(schedule.workers[static_cast<size_t>(stage)]);
    for (int b = 0; b < 9; ++b) EXPECT_EQ(versions[static_cast<size_t>(b)], std::max(0, b - (3 - stage)));
  }
}

TEST(Schedule, VerticalSyncUsesTheVersionOfTheFirstStageEverywhere) {
  ScheduleRequest request = request_of(ScheduleKind::kPipedream, 4, 12);
  request.vertical_sync = true;
  Schedule schedule = make_schedule(request);
  EXPECT_NO_THROW(validate(schedule));
  for (const ScheduleWorker& worker : schedule.workers)
    EXPECT_EQ(versions_at_forward(worker), versions_at_forward(schedule.workers[0]));
  for (const Occupancy& own : occupancy(schedule)) EXPECT_EQ(own.versions, 4);
}

TEST(Schedule, PipedreamKeepsNToOneVersions) {
  std::vector<Occupancy> all = occupancy(make_schedule(request_of(ScheduleKind::kPipedream, 4, 8)));
  for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(all[static_cast<size_t>(stage)].versions, 4 - stage);
  ScheduleRequest replicated = request_of(ScheduleKind::kPipedream, 3, 12);
  replicated.replicas = {2, 1, 1};
  std::vector<int> versions;
  for (const Occupancy& own : occupancy(make_schedule(replicated))) versions.push_back(own.versions);
  EXPECT_EQ(versions, (std::vector<int>{2, 2, 2, 1}));  // two replicas of the first stage
}

TEST(Schedule, PeaksAreThoseOfTheReference) {
  std::vector<Occupancy> gpipe = occupancy(make_schedule(request_of(ScheduleKind::kGpipe, 4, 8)));
  std::vector<Occupancy> flush = occupancy(make_schedule(request_of(ScheduleKind::k1F1B, 4, 8)));
  std::vector<Occupancy> zero = occupancy(make_schedule(request_of(ScheduleKind::kZbH1, 4, 8)));
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(gpipe[static_cast<size_t>(stage)].peak_activations, 8);
    EXPECT_EQ(flush[static_cast<size_t>(stage)].peak_activations, 4 - stage);
    EXPECT_EQ(zero[static_cast<size_t>(stage)].peak_activations, 4);
    EXPECT_EQ(flush[static_cast<size_t>(stage)].versions, 1);
  }
}

TEST(Schedule, DoubleBufferedWeightsAreOneMinibatchOld) {
  ScheduleRequest request = request_of(ScheduleKind::k2BW, 4, 4);
  request.minibatches = 8;
  Schedule schedule = make_schedule(request);
  for (const ScheduleWorker& worker : schedule.workers) {
    std::vector<int> versions = versions_at_forward(worker);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(versions[static_cast<size_t>(i)], std::max(0, i / 4 - 1));
  }
  for (const Occupancy& own : occupancy(schedule)) EXPECT_EQ(own.versions, 2);
}

TEST(Schedule, DoubleBufferedWeightsNeedAsManyMicroBatchesAsStages) {
  ScheduleRequest request = request_of(ScheduleKind::k2BW, 4, 2);
  request.minibatches = 8;
  EXPECT_THROW(make_schedule(request), ConfigError);
}

TEST(Schedule, MistakesInListsAreFound) {
  Schedule good = make_schedule(request_of(ScheduleKind::k1F1B, 2, 3));
  auto broken = [&](auto change) {
    Schedule schedule = good;
    change(schedule);
    EXPECT_THROW(validate(schedule), ConfigError) << to_string(schedule);
  };
  broken([](Schedule& s) { std::swap(s.workers[0].actions[0], s.workers[0].actions[5]); });
  broken([](Schedule& s) { s.workers[1].actions.erase(s.workers[1].actions.begin()); });
  broken([](Schedule& s) { s.workers[0].actions.erase(s.workers[0].actions.begin() + 1); });
  broken([](Schedule& s) { s.workers[0].actions.push_back(s.workers[0].actions[0]); });
  broken([](Schedule& s) { s.workers[0].actions[0].version = 1; });
  broken([](Schedule& s) { s.workers[1].actions.back().version = 3; });
  broken([](Schedule& s) { std::swap(s.workers[1].actions[1], s.workers[1].actions[2]); });
}

TEST(Schedule, RequestsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(make_schedule(request_of(ScheduleKind::kGpipe, 0, 1)), ConfigError);
  EXPECT_THROW(make_schedule(request_of(ScheduleKind::kGpipe, 1, 0)), ConfigError);
  ScheduleRequest request = request_of(ScheduleKind::k1F1B, 2, 4);
  request.chunks = 2;
  EXPECT_THROW(make_schedule(request), ConfigError);
  request.chunks = 1;
  request.replicas = {1};
  EXPECT_THROW(make_schedule(request), ConfigError);
  request.replicas = {1, 0};
  EXPECT_THROW(make_schedule(request), ConfigError);
  request.replicas = {1, 5};
  EXPECT_THROW(make_schedule(request), ConfigError);
  request.replicas = {};
  request.vertical_sync = true;
  EXPECT_THROW(make_schedule(request), ConfigError);
  EXPECT_THROW(parse_schedule_kind("2f2b"), ConfigError);
  for (ScheduleKind kind : kAllKinds) EXPECT_EQ(parse_schedule_kind(to_string(kind)), kind);
}

}  // namespace
}  // namespace yoke::plan
