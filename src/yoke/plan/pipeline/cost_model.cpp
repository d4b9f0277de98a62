#include "yoke/plan/pipeline/cost_model.h"

#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::plan {
namespace {

double push_and_pull(int r) {
  return 4.0 * (r - 1) / r;
}
double every_peer(int r) {
  return 2.0 * (r - 1);
}
double ring(int r) {
  return 2.0 * (r - 1) / r;
}

constexpr CostModel kModels[] = {
    {"ring", ring, false, true, false, true},
    {"paper2018", push_and_pull, false, true, false, true},
    {"paper2019", every_peer, true, true, false, true},
    {"released", push_and_pull, false, false, true, false},
};

}  // namespace

const CostModel& cost_model(const std::string& name) {
  std::vector<std::string> names;
  for (const CostModel& model : kModels) {
    if (name == model.name) return model;
    names.push_back(model.name);
  }
  throw ConfigError("cost model `{}` is unknown. Accepted: {}.", name, join(names, " "));
}

}  // namespace yoke::plan
