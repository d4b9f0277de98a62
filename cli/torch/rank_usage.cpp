#include "cli/torch/rank_usage.h"

#include <algorithm>

#include "cli/torch/memory_failure.h"
#include "yoke/compute/device.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/parallel/common/gather_json.h"
#include "yoke/parallel/fit.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {
namespace {

using Kind = parallel::StatePiece::Kind;

// 0 for what was offloaded to host memory.
int64_t bytes_on(const torch::Device& device, const torch::Tensor& tensor) {
  return tensor.device().type() == device.type() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

metrics::MemoryUse held_by(engine::Worker& worker, const RunConfig& config) {
  metrics::MemoryUse held;
  int64_t parameters = 0;
  for (const parallel::StatePiece& piece : worker.strategy->state()) {
    const int64_t bytes = bytes_on(worker.device, piece.values);
    if (piece.kind == Kind::kOptimizer)
      held.optimizer += bytes;
    else
      held.parameters += bytes;
    if (piece.kind == Kind::kParameter) parameters += bytes;
  }
  // From ZeRO 2 on a rank keeps the gradients of its pieces alone, a stage from ZeRO 3 on.
  const bool own_pieces = config.parallel.zero >= (config.parallel.pipeline > 1 ? 3 : 2);
  held.gradients = own_pieces ? 0 : parameters;
  for (const auto& [name, piece] : worker.maker->parameters())
    if (own_pieces) held.gradients += bytes_on(worker.device, piece);
  return held;
}

}  // namespace

RankUsage::RankUsage() : process_bytes_(compute::peak_memory_bytes(torch::kCPU)) {}

parallel::RunEnd RankUsage::end(engine::Worker& worker, const RunConfig& config,
                                const engine::Outcome& outcome) {
  const int64_t own_memory = compute::peak_memory_bytes(worker.device);
  gather(worker, config, static_cast<int64_t>(outcome.step_seconds.size()), own_memory);
  parallel::RunEnd end =
      worker.strategy->finish(own_memory);  // after it all ranks have written their records
  check_budget_was_kept(config, own_memory);
  hash_ = engine::parameter_hash(engine::whole_model(worker));
  return end;
}

void RankUsage::gather(engine::Worker& worker, const RunConfig& config, int64_t steps, int64_t peak_memory) {
  metrics::MemoryUse own = held_by(worker, config);
  own.other = worker.device.is_cpu() ? process_bytes_ : 0;
  own.activations =
      std::max<int64_t>(0, peak_memory - own.other - own.parameters - own.gradients - own.optimizer);
  const parallel::Traffic now = worker.strategy->traffic();
  steps = std::max<int64_t>(1, steps);
  const std::vector<int64_t> row = {own.parameters,
                                    own.gradients,
                                    own.optimizer,
                                    own.activations,
                                    own.other,
                                    (now.pipeline - before_.pipeline) / steps,
                                    (now.data - before_.data) / steps,
                                    (now.tensor - before_.tensor) / steps};
  comm::Communicator* team = worker.strategy->team();
  metrics::AxisBytes sent;
  for (const nlohmann::json& rank : parallel::gather_json(row, team)) {
    auto all = rank.get<std::vector<int64_t>>();
    memory_.push_back({all[0], all[1], all[2], all[3], all[4]});
    sent.pipeline.push_back(all[5]);
    sent.data.push_back(all[6]);
    sent.tensor.push_back(all[7]);
  }
  if (team != nullptr) sent_ = sent;
}

void RankUsage::put(metrics::Summary& summary, const RunConfig& config, const engine::LoopPlan& plan,
                    int workers, std::vector<int64_t> peaks) const {
  summary.parameter_hash = hash_;
  summary.world_size = parallel::in_one_process(config) ? plan.replicas : workers;
  summary.peak_memory_bytes = std::move(peaks);
  const parallel::Mesh mesh = parallel::mesh_of(config, workers);
  summary.mesh = {mesh.pipeline, mesh.data, mesh.tensor};
  summary.memory = memory_;
  summary.communication = sent_;
}

}  // namespace yoke::cli
