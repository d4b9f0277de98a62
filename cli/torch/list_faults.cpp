// yoke doctor --faults: the points at which YOKE_FAULT can inject a fault.
#include <fmt/core.h>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "yoke/base/fault.h"

namespace yoke::cli {

int list_faults(const CommandLine& line) {
  nlohmann::json rows = nlohmann::json::array();
  for (const fault::PointInfo& point : fault::points())
    rows.push_back({{"name", point.name}, {"when", point.when}});
  if (line.json)
    print_json({{"faults", rows}});
  else
    fmt::print("{}", fault::list_points());
  return 0;
}

}  // namespace yoke::cli
