#include "yoke/plan/pipeline/levels.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/routes.h"

namespace yoke::plan {
namespace {

constexpr int64_t kMostDevices = 1'000'000;

Level parse_level(const std::string& part) {
  size_t at = part.find('@');
  std::string count = trim(part.substr(0, at)),
              rate = at == std::string::npos ? "" : trim(part.substr(at + 1));
  Level level;
  auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), level.count);
  auto bandwidth = parse_rate(rate);
  if (error != std::errc() || end != count.data() + count.size() || !bandwidth)
    throw ConfigError(
        "--levels {}: expected a count and a rate such as 4@12GB/s, from the innermost outwards.", part);
  level.bandwidth = *bandwidth;
  return level;
}

// Devices per machine; all must have the same number.
int devices_per_machine(const cluster::Routes& routes, const cluster::Topology& topology) {
  std::map<int, int> counts;
  for (int worker = 0; worker < routes.workers(); ++worker) ++counts[routes.machine(worker)];
  auto [fewest, most] =
      std::minmax_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
  if (fewest->second != most->second)
    throw ConfigError(
        "{}: machines of {} and of {} devices. A plan needs equal machines; use --devices and --bandwidth.",
        topology.name.empty() ? "cluster" : topology.name, fewest->second, most->second);
  return most->second;
}

}  // namespace

int device_count(const std::vector<Level>& levels) {
  int count = 1;
  for (const Level& level : levels) count *= level.count;
  return count;
}

void validate(const std::vector<Level>& levels) {
  if (levels.empty()) throw ConfigError("a plan needs at least one level of devices.");
  int64_t devices = 1;
  for (const Level& level : levels) {
    if (level.count < 1) throw ConfigError("{} devices: expected at least 1.", level.count);
    if (!(level.bandwidth > 0) || !std::isfinite(level.bandwidth))
      throw ConfigError("a bandwidth of {} bytes per second: expected a number above 0.", level.bandwidth);
    devices *= level.count;
    if (devices > kMostDevices) throw ConfigError("more than {} devices.", kMostDevices);
  }
}

std::vector<Level> parse_levels(const std::string& text) {
  std::vector<Level> levels;
  for (const std::string& part : split(text, ',')) levels.push_back(parse_level(part));
  if (levels.empty()) throw ConfigError("--levels: expected a list such as 4@12GB/s,4@1.25GB/s.");
  validate(levels);
  return levels;
}

std::string to_string(const std::vector<Level>& levels) {
  std::vector<std::string> parts;
  for (const Level& level : levels) parts.push_back(fmt::format("{}@{}", level.count, level.bandwidth));
  return join(parts, ",");
}

std::vector<Level> levels_of(const cluster::Topology& topology) {
  cluster::Routes routes(topology);
  if (routes.workers() == 0) throw ConfigError("{}: there are no devices.", topology.name);
  int each = devices_per_machine(routes, topology), machines = routes.workers() / each;
  double inside = std::numeric_limits<double>::infinity(), between = inside;
  for (int a = 0; a < routes.workers(); ++a) {
    for (int b = 0; b < routes.workers(); ++b) {
      if (a == b) continue;
      double& narrowest = routes.machine(a) == routes.machine(b) ? inside : between;
      narrowest = std::min(narrowest, routes.bandwidth(a, b));
    }
  }
  std::vector<Level> levels;
  if (each > 1) levels.push_back({each, inside});
  if (machines > 1) levels.push_back({machines, between});
  if (levels.empty()) levels.push_back({1, 1.0});  // one device: no link is used
  return levels;
}

std::vector<Level> one_level_of(const cluster::Topology& topology) {
  cluster::Routes routes(topology);
  if (routes.workers() == 0) throw ConfigError("{}: there are no devices.", topology.name);
  double narrowest = std::numeric_limits<double>::infinity();
  for (int a = 0; a < routes.workers(); ++a)
    for (int b = 0; b < routes.workers(); ++b)
      if (a != b) narrowest = std::min(narrowest, routes.bandwidth(a, b));
  return {{routes.workers(), routes.workers() > 1 ? narrowest : 1.0}};
}

}  // namespace yoke::plan
