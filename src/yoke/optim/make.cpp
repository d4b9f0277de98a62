#include <map>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/optim/optimizer.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using Factory = std::unique_ptr<Optimizer> (*)(const OptimizerOptions&, std::vector<NamedTensor>);

const std::map<std::string, Factory>& factories() {
  static const std::map<std::string, Factory> table = {
      {"sgd", make_sgd},   {"adamw", make_adamw},       {"adagrad", make_adagrad},
      {"ftrl", make_ftrl}, {"proximal", make_proximal}, {"lbfgs", make_lbfgs},
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
  return found->second(options, std::move(parameters));
}

}  // namespace yoke::optim
