#include "yoke/sim/pipeline.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::sim {
namespace {

using plan::ScheduleKind;
using plan::ScheduleRequest;

ScheduleRequest request_of(ScheduleKind kind, int stages, int microbatches, int chunks = 1) {
  ScheduleRequest request;
  request.kind = kind;
  request.stages = stages;
  request.microbatches = microbatches;
  request.chunks = chunks;
  return request;
}

PipelineCosts costs_of(double forward, double backward) {
  PipelineCosts costs;
  costs.forward = {forward};
  costs.backward = {backward};
  return costs;
}

double makespan(const ScheduleRequest& request, const PipelineCosts& costs) {
  return simulate_pipeline(plan::make_schedule(request), costs).makespan;
}

TEST(PipelineSimulation, FlushedSchedulesTakeMPlusPMinusOneRounds) {
  for (int p = 1; p <= 6; ++p) {
    for (int m : {1, 2, 3, 4, 5, 9, 16}) {
      for (ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kPipedream}) {
        PipelineRun run = simulate_pipeline(plan::make_schedule(request_of(kind, p, m)), costs_of(1, 2));
        EXPECT_DOUBLE_EQ(run.makespan, (m + p - 1) * 3.0) << plan::to_string(kind) << p << " " << m;
        EXPECT_NEAR(run.bubble_fraction(), (p - 1.0) / (m + p - 1), 1e-12);
      }
    }
  }
}

TEST(PipelineSimulation, OneDeviceAtATimeTakesTheSum) {
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::kNaive, 4, 3), costs_of(1, 2)), 3 * 4 * 3.0);
}

TEST(PipelineSimulation, InterleavingDividesTheBubble) {
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::kInterleaved, 2, 4, 2), costs_of(1, 2)), 13.5);
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::kInterleaved, 4, 8, 2), costs_of(1, 2)), 28.5);
  for (int p : {2, 3, 4}) {
    for (int v : {1, 2, 4}) {
      for (int groups : {1, 2, 4}) {
        int m = groups * p;
        EXPECT_NEAR(makespan(request_of(ScheduleKind::kInterleaved, p, m, v), costs_of(1, 2)),
                    3.0 * m + (p - 1) * 3.0 / v, 1e-9)
            << p << " " << m << " " << v;
      }
    }
  }
}

TEST(PipelineSimulation, ZeroBubbleFillsTheBubbleWithWeightGradients) {
  PipelineCosts costs = costs_of(1, 2);
  costs.weight_backward = {1};
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::kZbH1, 4, 8), costs), 27);
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::k1F1B, 4, 8), costs), 33);
  for (int p : {2, 3, 4, 6}) {
    for (int m : {p, 2 * p, 5 * p})  // m (TF + TB + TW) + (p - 1)(TF + TB - TW)
      EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::kZbH1, p, m), costs), 3.0 * m + (p - 1))
          << p << " " << m;
  }
}

TEST(PipelineSimulation, StreamsOfMinibatchesDoNotDrainWithoutAFlush) {
  ScheduleRequest stream = request_of(ScheduleKind::k2BW, 4, 4),
                  flushed = request_of(ScheduleKind::k1F1B, 4, 4);
  stream.minibatches = flushed.minibatches = 10;
  EXPECT_DOUBLE_EQ(makespan(stream, costs_of(1, 2)), (40 + 3) * 3.0);
  EXPECT_DOUBLE_EQ(makespan(flushed, costs_of(1, 2)), 10 * (4 + 3) * 3.0);
}

TEST(PipelineSimulation, ReplicatedStagesShareTheStream) {
  // Stages of 2, 1 and 1 seconds on 2-1-1: a minibatch a second is the bound; with two in flight for each
  // replica taking turns costs some of it.
  ScheduleRequest request = request_of(ScheduleKind::kPipedream, 3, 200);
  request.replicas = {2, 1, 1};
  PipelineCosts costs;
  costs.forward = {0.5, 0.25, 0.25};
  costs.backward = {1.5, 0.75, 0.75};
  EXPECT_NEAR(makespan(request, costs) / 200, 1.0, 0.15);
}

TEST(PipelineSimulation, SyncOverlapsOrAdds) {
  ScheduleRequest request = request_of(ScheduleKind::kPipedream, 1, 100);
  request.replicas = {2};
  PipelineCosts costs = costs_of(1, 2);
  costs.sync = {2};
  EXPECT_NEAR(makespan(request, costs), 50 * 3 + 2, 1e-9);
  costs.sync_overlaps = false;
  EXPECT_NEAR(makespan(request, costs), 50 * 5, 1e-9);
  costs.sync_overlaps = true;
  costs.sync = {7};  // the wire is the bottleneck
  EXPECT_NEAR(makespan(request, costs) / 50, 7, 0.2);
}

TEST(PipelineSimulation, TransfersDelayTheNextStage) {
  PipelineCosts costs = costs_of(1, 2);
  costs.transfer = {0.5};
  EXPECT_DOUBLE_EQ(makespan(request_of(ScheduleKind::k1F1B, 4, 1), costs), 4 * 3 + 6 * 0.5);
  EXPECT_GT(makespan(request_of(ScheduleKind::k1F1B, 4, 8), costs), 33);
}

TEST(PipelineSimulation, TheSlowestStageSetsThePace) {
  PipelineCosts costs;
  costs.forward = {1, 2, 1, 1};
  costs.backward = {2, 4, 2, 2};
  PipelineRun run = simulate_pipeline(plan::make_schedule(request_of(ScheduleKind::k1F1B, 4, 50)), costs);
  EXPECT_NEAR(run.makespan / 50, 6, 0.3);
  EXPECT_DOUBLE_EQ(run.busy[1], 300);
}

TEST(PipelineSimulation, EveryPassMayTakeATimeOfItsOwn) {
  plan::Schedule schedule = plan::make_schedule(request_of(ScheduleKind::k1F1B, 3, 4));
  PipelineCosts costs;
  costs.forward = {100};  // not asked
  auto base = [](const plan::ScheduleAction& pass) {
    return pass.op == plan::ScheduleOp::kForward ? 1.0 : 2.0;
  };
  costs.pass_seconds = [&](const plan::ScheduleAction& pass, int) { return base(pass); };
  double even = simulate_pipeline(schedule, costs).makespan;
  EXPECT_DOUBLE_EQ(even, (4 + 3 - 1) * 3.0);
  // The last backward of the first stage: everybody else is done, so that it shows as it is.
  costs.pass_seconds = [&](const plan::ScheduleAction& pass, int worker) {
    bool late = worker == 0 && pass.op == plan::ScheduleOp::kBackward && pass.microbatch == 3;
    return base(pass) + (late ? 0.5 : 0);
  };
  PipelineRun run = simulate_pipeline(schedule, costs);
  EXPECT_DOUBLE_EQ(run.makespan, even + 0.5);
  EXPECT_DOUBLE_EQ(run.busy[0], 4 * 3 + 0.5);
  EXPECT_DOUBLE_EQ(run.busy[1], 4 * 3);
}

TEST(PipelineSimulation, CostsThatMakeNoSenseAreRefused) {
  plan::Schedule schedule = plan::make_schedule(request_of(ScheduleKind::kZbH1, 2, 2));
  PipelineCosts costs;
  costs.forward = {1, 2, 3};
  EXPECT_THROW(simulate_pipeline(schedule, costs), ConfigError);
  costs.forward = {-1};
  EXPECT_THROW(simulate_pipeline(schedule, costs), ConfigError);
  costs.forward = {1};
  costs.weight_backward = {5};
  EXPECT_THROW(simulate_pipeline(schedule, costs), ConfigError);
  for (double seconds : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    PipelineCosts given;
    given.pass_seconds = [seconds](const plan::ScheduleAction&, int) { return seconds; };
    EXPECT_THROW(simulate_pipeline(schedule, given), ConfigError);
  }
}

TEST(PipelineSimulation, TheTraceIsOneJsonDocument) {
  plan::Schedule schedule = plan::make_schedule(request_of(ScheduleKind::kZbH1, 2, 3));
  nlohmann::json trace = nlohmann::json::parse(pipeline_trace(schedule, simulate_pipeline(schedule, {})));
  size_t spans = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) spans += event["ph"] == "X" ? 1 : 0;
  EXPECT_EQ(spans, 2u * 3 * 3);
}

TEST(PipelineSimulation, TheTimelineHasEveryPass) {
  plan::Schedule schedule = plan::make_schedule(request_of(ScheduleKind::k1F1B, 2, 3));
  PipelineRun run = simulate_pipeline(schedule, {});
  metrics::Timeline timeline = timeline_of(schedule, run);
  EXPECT_EQ(timeline.rows, (std::vector<std::string>{"stage 0", "stage 1"}));
  EXPECT_EQ(timeline.spans.size(), 2u * 2 * 3);
  EXPECT_EQ(timeline.makespan, run.makespan);
  EXPECT_DOUBLE_EQ(timeline.idle_fraction(), run.bubble_fraction());
}

}  // namespace
}  // namespace yoke::sim
