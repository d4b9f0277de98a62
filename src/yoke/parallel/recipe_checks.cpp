#include "yoke/parallel/recipe_checks.h"

#include "yoke/base/error.h"
#include "yoke/parallel/registry.h"

namespace yoke::parallel {
namespace {

void refuse(const std::string& what, const char* with, const char* why) {
  throw ConfigError("{} cannot be combined with {}: {}.", what, with, why);
}

void check_served(const optim::OptimizerOptions& optimizer) {
  constexpr const char* kServers = "parallel.sync = \"ps\"";
  constexpr const char* kOneRule =
      "a server moves ranges of all parameters by one rule, and knows no names. Use parallel.sync = "
      "\"allreduce\"";
  std::string problem;
  if (!optim::read_groups(optimizer.groups, problem).empty()) refuse("train.groups", kServers, kOneRule);
  if (!optimizer.decay_biases) refuse("train.decay_biases = false", kServers, kOneRule);
  if (optimizer.optimizer == "lars" || optimizer.optimizer == "lamb")
    refuse("train.optimizer = \"" + optimizer.optimizer + "\"", kServers,
           "a server holds ranges of the parameters, which cut through layers, and it needs their norms. Use "
           "parallel.sync = \"allreduce\"");
  if (optimizer.ema > 0)
    refuse(fmt::format("train.ema = {}", optimizer.ema), kServers,
           "servers update the parameters, and a worker does not see every version. Use parallel.sync = "
           "\"allreduce\"");
}

}  // namespace

void check_recipe(const Choices& choices, const optim::OptimizerOptions& optimizer) {
  const Chosen chosen = choose(choices);
  if (chosen.has("servers")) check_served(optimizer);
  if (chosen.has("average") && optimizer.ema > 0)
    refuse(fmt::format("train.ema = {}", optimizer.ema), "parallel.sync = \"average\"",
           "replicas differ between two rounds, and so would their averages. Use parallel.sync = "
           "\"allreduce\"");
}

}  // namespace yoke::parallel
