#include "cli/repeatable.h"

#include <fmt/core.h>

#include "yoke/base/error.h"
#include "yoke/parallel/registry.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::cli {
namespace {

// Compression with error feedback.
bool hook_has_memory(const std::string& hook) {
  return hook != "none" && hook != "fp16" && hook != "bf16";
}

}  // namespace

std::string unrepeatable(const RunConfig& config) {
  if (!parallel::choose(config).sync().lockstep && plan::parse_rule(config.ps.policy) != plan::Rule::kSync)
    return fmt::format("ps.policy = \"{}\" applies gradients as they arrive", config.ps.policy);
  if (config.parallel.split == "speed") return "parallel.split = \"speed\" depends on measured times";
  if (config.parallel.plan == "auto") return "parallel.plan = \"auto\" depends on measured times";
  if (config.parallel.partition == "auto") return "parallel.partition = \"auto\" depends on measured times";
  if (hook_has_memory(config.ddp.hook))
    return fmt::format("ddp.hook = \"{}\" uses error feedback that is not saved in checkpoints",
                       config.ddp.hook);
  return "";
}

void check_deterministic(const RunConfig& config) {
  if (!config.train.compute.deterministic) return;
  if (std::string why = unrepeatable(config); !why.empty())
    throw ConfigError("train.deterministic = true: {}. Change that, or set train.deterministic = false.",
                      why);
}

}  // namespace yoke::cli
