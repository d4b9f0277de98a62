#include "cli/lab_compare_cluster.h"

#include "yoke/models/outline/outline.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/plan/averaging/graph.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/plan/schedules/schedule.h"
#include "yoke/sim/pipeline.h"
#include "yoke/sim/ps_simulation.h"

namespace yoke::cli {
namespace {

constexpr double kForwardShare = 1.0 / 3;  // of a minibatch
constexpr int64_t kMeasuredUpdates = 500;

double model_bytes(const RunConfig& config) {
  return models::outline_of(config.model).parameters * sizeof(float);
}

Progress evenly(double seconds, double bytes, int64_t rounds) {
  Progress progress;
  for (int64_t i = 1; i <= rounds; ++i) {
    progress.seconds.push_back(seconds * static_cast<double>(i));
    progress.bytes.push_back(bytes * static_cast<double>(i));
  }
  return progress;
}

Progress simulated(const ModelledCluster& cluster, const sim::AveragingRun& run, int64_t rounds) {
  sim::AveragingTrace trace = sim::simulate_averaging(run, cluster.link, rounds);
  return {std::move(trace.seconds), std::move(trace.bytes)};
}

}  // namespace

Progress summing_in_every_step(const ModelledCluster& cluster, double sent, double relative, int64_t rounds) {
  sim::AveragingRun run;
  run.rounds.never = true;
  run.ranks = cluster.workers;
  run.gradients = true;
  run.average_at_end = false;
  // The simulator sums by a ring: 2 (P - 1) / P of an array are sent.
  run.model_bytes = sent * cluster.workers / (2.0 * (cluster.workers - 1));
  run.compute_seconds = cluster.compute * relative;
  return simulated(cluster, run, rounds);
}

Progress averaging_now_and_then(const ModelledCluster& cluster, const RunConfig& config, int64_t rounds) {
  sim::AveragingRun run;
  run.rounds = parallel::rounds_of(config.average);
  run.ranks = cluster.workers;
  run.model_bytes = model_bytes(config);
  run.compute_seconds = cluster.compute * cluster.slow;
  if (config.average.method == "gossip")
    run.neighbours = plan::mixing_graph(config.average.graph, run.ranks).degree();
  return simulated(cluster, run, rounds);
}

Progress parameter_servers(const ModelledCluster& cluster, const RunConfig& config, int64_t rounds) {
  sim::PsSimulation s;
  s.policy.rule = plan::parse_rule(config.ps.policy);
  s.policy.workers = cluster.workers;
  s.policy.k = config.ps.k;
  if (plan::traits_of(s.policy.rule).gated)
    s.policy.max_delay = plan::parse_max_delay("ps.max_delay", config.ps.max_delay);
  s.law = plan::parse_delay_law(config.slowdown.law);
  s.slow = plan::parse_slow_workers("slowdown.workers", config.slowdown.workers, cluster.workers);
  s.compute = cluster.compute;
  s.bytes = static_cast<int64_t>(model_bytes(config));
  s.bandwidth = cluster.link.bytes_per_second;
  s.servers = static_cast<int>(config.ps.servers);
  s.updates = s.warm_up = kMeasuredUpdates;
  const sim::PsOutcome outcome = sim::simulate_ps(s);
  const double gradients = static_cast<double>(outcome.gradients) / cluster.workers;  // in rounds
  return evenly(outcome.seconds / gradients, static_cast<double>(outcome.bytes) / gradients / cluster.workers,
                rounds);
}

Progress pipeline_of_stages(const ModelledCluster& cluster, const RunConfig& config, double sent,
                            int64_t rounds) {
  plan::ScheduleRequest request;
  request.kind = plan::parse_schedule_kind(config.pipeline.schedule);
  request.stages = cluster.workers;
  request.microbatches = static_cast<int>(config.pipeline.microbatches);
  // A step processes a minibatch of every worker, in micro-batches, each on a part of the model.
  const double pass = cluster.compute / request.microbatches;
  sim::PipelineCosts costs;
  costs.forward.assign(static_cast<size_t>(cluster.workers), pass * kForwardShare);
  costs.backward.assign(static_cast<size_t>(cluster.workers), pass * (1 - kForwardShare));
  costs.forward.back() *= cluster.slow;
  costs.backward.back() *= cluster.slow;
  // `sent` is of the busiest stage; one in the middle sends both ways.
  const double one_way = sent / (cluster.workers > 2 ? 2 : 1);
  costs.transfer = {cluster.link.latency + one_way / request.microbatches / cluster.link.bytes_per_second};
  const double step = sim::simulate_pipeline(plan::make_schedule(request), costs).makespan;
  return evenly(step, sent, rounds);
}

Progress one_device(const ModelledCluster& cluster, int64_t rounds) {
  return evenly(cluster.compute * cluster.workers, 0, rounds);
}

}  // namespace yoke::cli
