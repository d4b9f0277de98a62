#include "yoke/engine/circumstances.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include "yoke/compute/conv_path.h"
#include "yoke/compute/determinism.h"
#include "yoke/compute/device.h"

namespace yoke::engine {

nlohmann::json circumstances(const Worker& worker) {
  return {{"machine", compute::machine_name()},
          {"device", compute::device_name(worker.device)},
          {"threads", at::get_num_threads()},
          {"train.deterministic", compute::is_deterministic()}};
}

std::string changed_circumstances(const nlohmann::json& before, const nlohmann::json& now) {
  std::string text;
  if (!before.is_object()) return text;
  for (const auto& [name, value] : now.items()) {
    auto found = before.find(name);
    if (found == before.end() || *found == value) continue;
    text += fmt::format("{}{} {} (was {})", text.empty() ? "" : ", ", name, value.dump(), found->dump());
  }
  return text;
}

}  // namespace yoke::engine
