#include "cli/torch/follow_plan.h"

#include <fmt/core.h>

#include "cli/run_checks.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/measured_parts.h"
#include "yoke/engine/profile_model.h"
#include "yoke/parallel/fit.h"
#include "yoke/plan/pipeline/planner.h"

namespace yoke::cli {
namespace {

constexpr int64_t kProbeBytes = 4 << 20;
constexpr int kProbes = 5;

// Bandwidth from rank 0 to rank 1 in bytes per second, as stages would use it.
double measured_bandwidth(parallel::Membership& world, torch::Device device) {
  torch::Tensor block = torch::zeros({kProbeBytes}, torch::kUInt8).to(device);
  double best = 0;
  for (int i = 0; i < kProbes; ++i) {
    (*world.world()).barrier().wait();
    Stopwatch watch;
    if (world.rank() == 0) comm::send((*world.world()), block, 1, 0, "bandwidth");
    if (world.rank() == 1) comm::receive((*world.world()), block, 0, 0, "bandwidth");
    best = std::max(best, static_cast<double>(kProbeBytes) / watch.seconds());
  }
  return best;
}

// Broadcasts a text.
std::string shared_text(parallel::Membership& world, const std::string& text, torch::Device device) {
  torch::Tensor length = torch::tensor({static_cast<int64_t>(text.size())}, torch::kInt64).to(device);
  comm::broadcast((*world.world()), length, 0, "plan: length");
  torch::Tensor bytes = torch::zeros({length.cpu().item<int64_t>()}, torch::kUInt8);
  if (world.rank() == 0) std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  bytes = bytes.to(device);
  comm::broadcast((*world.world()), bytes, 0, "plan");
  bytes = bytes.cpu();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

// The whole model on this rank, to be measured.
std::unique_ptr<engine::Worker> whole_model(const RunConfig& config, parallel::Membership& world) {
  engine::WorkerOptions options = worker_options(config);
  static_cast<parallel::Choices&>(options) = {};
  options.local_rank = world.job().identity().local_rank;
  options.local_ranks = world.job().identity().local_world_size;
  return engine::make_worker(options);
}

plan::PipelinePlan plan_now(const RunConfig& config, parallel::Membership& world) {
  auto worker = whole_model(config, world);
  double bandwidth = measured_bandwidth(world, worker->device);
  std::string text;
  if (world.rank() == 0) {
    plan::Profile profile = engine::profile_model(*worker, config.data.batch_size);
    plan::PlanOptions how;
    how.levels = {{world.workers(), bandwidth}};
    how.model = &plan::cost_model("ring");
    text = plan::to_json(plan::make_plan(plan::prefix_cuts(profile), how));
  }
  return plan::parse_plan(shared_text(world, text, worker->device), "the plan of rank 0");
}

std::vector<int> parts_now(const RunConfig& config, parallel::Membership& world, int parts) {
  auto worker = whole_model(config, world);
  nlohmann::json part_of;
  if (world.rank() == 0) part_of = engine::measured_parts(*worker, config.data.batch_size, parts);
  return nlohmann::json::parse(shared_text(world, part_of.dump(), worker->device)).get<std::vector<int>>();
}

void follow_partition(RunConfig& config, parallel::Membership& world) {
  const int parts = parallel::parts_of(config, world.workers());
  config.node_parts = config.parallel.partition == "auto"
                          ? parts_now(config, world, parts)
                          : engine::parts_of_file(config.model, config.parallel.partition);
  config.parallel.pipeline = parts;
}

}  // namespace

void follow_plan(RunConfig& config, parallel::Membership& world) {
  if (!config.parallel.partition.empty()) return follow_partition(config, world);
  if (config.parallel.plan.empty() || world.workers() == 1) return;
  bool now = config.parallel.plan == "auto";
  plan::PipelinePlan plan =
      now ? plan_now(config, world) : plan::parse_plan(read_file(config.parallel.plan), config.parallel.plan);
  check_plan(config, plan, world.workers());
  if (world.rank() == 0)
    log::info("plan {}: {} a minibatch, {:.2f}x one device", plan.config,
              format_duration(plan.bottleneck_seconds), plan.speedup_over_one);
  config.parallel.pipeline = static_cast<int64_t>(plan.stages.size());
  config.stage_replicas.clear();
  config.pipeline.stages.clear();
  if (plan.stages.size() == 1) return;
  for (const plan::PipelineStage& stage : plan.stages) {
    config.pipeline.stages +=
        fmt::format("{}{}-{}", config.pipeline.stages.empty() ? "" : ",", stage.first, stage.last);
    config.stage_replicas.push_back(stage.replicas);
  }
}

}  // namespace yoke::cli
