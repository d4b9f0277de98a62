#include <map>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/optim/optimizer.h"
#include "yoke/optim/optimizers.h"
#include "yoke/optim/settings.h"

namespace yoke::optim {
namespace {

using Factory = std::unique_ptr<Optimizer> (*)(const OptimizerOptions&, std::vector<NamedTensor>);

const std::map<std::string, Factory>& factories() {
  static const std::map<std::string, Factory> table = {
      {"sgd", make_sgd},   {"adamw", make_adamw},       {"adagrad", make_adagrad},
      {"ftrl", make_ftrl}, {"proximal", make_proximal}, {"lbfgs", make_lbfgs},
      {"lars", make_lars}, {"lamb", make_lamb},         {"lion", make_lion},
  };
  return table;
}

}  // namespace

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  auto found = factories().find(options.optimizer);
  if (found == factories().end()) {
    std::vector<std::string> names;
    for (const auto& [name, factory] : factories()) names.push_back(name);
    throw ConfigError("train.optimizer = \"{}\": unknown optimizer. Accepted: {}", options.optimizer,
                      join(names));
  }
  OptimizerOptions settled = options.settings.empty() ? with_settings(options, parameters) : options;
  std::erase_if(parameters, [&](const NamedTensor& one) { return settings_of(settled, one.first).freeze; });
  if (options.ema == 0) return found->second(settled, std::move(parameters));
  auto optimizer = found->second(settled, parameters);
  return make_averaging(settled, std::move(parameters), std::move(optimizer));
}

}  // namespace yoke::optim
