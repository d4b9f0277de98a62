#include "cli/torch/resume_note.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/repeatable.h"
#include "yoke/engine/circumstances.h"
#include "yoke/parallel/registry.h"

namespace yoke::cli {
namespace {

// Strategies that overlap steps are drained by every save, including an unscheduled one after a signal.
bool drained_out_of_turn(const RunConfig& config, const engine::Worker& worker, int64_t step) {
  return worker.strategy->overlaps_steps() && config.checkpoint.every_steps > 0 &&
         step % config.checkpoint.every_steps != 0;
}

// Why the bits differ; empty: they do not.
std::string difference(const RunConfig& config, const checkpoint::Loaded& loaded,
                       const engine::Worker& worker, int ranks) {
  const nlohmann::json& rest = loaded.state.rest;
  const bool own_pace = worker.strategy->progress().has_value();
  const bool lockstep = (worker.strategy->team() != nullptr && !own_pace) || ranks == 1;
  auto saved = rest.contains("ranks") ? static_cast<int>(rest["ranks"].size()) : 1;
  if (lockstep && saved != ranks)
    return fmt::format("{} ranks instead of {} add in another order and draw other random numbers", ranks,
                       saved);
  if (std::string why = unrepeatable(config); !why.empty()) return why;
  if (!lockstep) return "workers other than the first draw other random numbers (dropout)";
  if (drained_out_of_turn(config, worker, loaded.step))
    return fmt::format("step {} is no multiple of checkpoint.every_steps: {}", loaded.step,
                       parallel::choose(config).sync().replicas_differ ? "replicas were averaged"
                                                                       : "the pipeline was drained");
  std::string changed = engine::changed_circumstances(rest.value("circumstances", nlohmann::json()),
                                                      engine::circumstances(worker));
  if (!changed.empty()) return changed;
  if (worker.device.is_cuda() && !config.train.compute.deterministic)
    return "CUDA kernels sum in no fixed order (train.deterministic = true fixes it, but is slower)";
  return "";
}

}  // namespace

std::string resume_note(const RunConfig& config, const checkpoint::Loaded& loaded,
                        const engine::Worker& worker, int ranks) {
  if (loaded.state.rest.contains("weights_only"))
    return "weights only: optimizer and data position start over";
  std::string why = difference(config, loaded, worker, ranks);
  if (why.empty()) return "bit-identical to an uninterrupted run";
  return "equal to an uninterrupted run but not bit-identical: " + why;
}

}  // namespace yoke::cli
