#include "cli/torch/resume_note.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/repeatable.h"
#include "yoke/engine/circumstances.h"

namespace yoke::cli {
namespace {

// Pipelines without a flush are drained by every save, and by one that a signal asked for out of turn.
bool drained_out_of_turn(const RunConfig& config, int64_t step) {
  bool flushes = config.pipeline.schedule != "pipedream" && config.pipeline.schedule != "2bw";
  return config.parallel.pipeline > 1 && !flushes && config.checkpoint.every_steps > 0 &&
         step % config.checkpoint.every_steps != 0;
}

// Why the bits differ; empty: they do not.
std::string difference(const RunConfig& config, const checkpoint::Loaded& loaded,
                       const engine::Worker& worker, int ranks) {
  const nlohmann::json& rest = loaded.state.rest;
  const bool servers = config.parallel.sync == "ps";
  auto saved = rest.contains("ranks") ? static_cast<int>(rest["ranks"].size()) : 1;
  if (!servers && saved != ranks)
    return fmt::format("{} ranks instead of {} add in another order and draw other random numbers", ranks,
                       saved);
  if (std::string why = unrepeatable(config); !why.empty()) return why;
  if (servers && ranks > 1) return "workers other than the first draw other random numbers (dropout)";
  if (drained_out_of_turn(config, loaded.step))
    return fmt::format("step {} is no multiple of checkpoint.every_steps: the pipeline was drained",
                       loaded.step);
  std::string changed = engine::changed_circumstances(rest.value("circumstances", nlohmann::json()),
                                                      engine::circumstances(worker));
  if (!changed.empty()) return changed;
  if (worker.device.is_cuda() && !config.train.compute.deterministic)
    return "CUDA kernels add in no fixed order (train.deterministic = true repeats bits, at a price)";
  return "";
}

}  // namespace

std::string resume_note(const RunConfig& config, const checkpoint::Loaded& loaded,
                        const engine::Worker& worker, int ranks) {
  if (loaded.state.rest.contains("weights_only")) return "weights alone: optimizer and position start anew";
  std::string why = difference(config, loaded, worker, ranks);
  if (why.empty()) return "bit-identical to an undisturbed run";
  return "equal to an undisturbed run but not bit-identical: " + why;
}

}  // namespace yoke::cli
