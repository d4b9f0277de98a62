#include "yoke/cluster/topology/topology.h"

#include <cmath>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/config/value.h"

namespace yoke::cluster {
namespace {

// In the order of the enumerations.
constexpr const char* kDeviceKinds[] = {"gpu", "cpu", "switch", "nic"};
constexpr const char* kLinkKinds[] = {"nvlink", "pcie", "qpi", "network", "memory"};

constexpr size_t kMostDevices = 100'000;
constexpr size_t kMostLinks = 1'000'000;
constexpr int kWidest = 1000;

template <class Kind, size_t N>
Kind parse(const char* what, std::string_view name, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Kind>(i);
  }
  throw ConfigError("{} `{}` is unknown. Accepted: {}.", what, name,
                    join(std::vector<std::string>(names, names + N), " "));
}

std::string quoted(const std::string& text) {
  return config::to_toml(config::Value(text));
}

std::string number(double value) {
  return config::to_toml(config::Value(value));
}

void check_devices(const Topology& topology) {
  std::set<std::string> machines(topology.machines.begin(), topology.machines.end());
  if (machines.size() != topology.machines.size())
    throw ConfigError("topology: two machines have the same name.");
  if (topology.devices.size() > kMostDevices)
    throw ConfigError("topology: {} devices. At most {} are accepted.", topology.devices.size(),
                      kMostDevices);
  std::set<std::string> names;
  for (const Device& device : topology.devices) {
    if (device.name.empty()) throw ConfigError("topology: a device without a name.");
    if (!names.insert(device.name).second)
      throw ConfigError("topology: two devices are named `{}`.", device.name);
    bool between = device.machine.empty() && device.kind == DeviceKind::kSwitch;
    if (!between && machines.count(device.machine) == 0)
      throw ConfigError("topology: device `{}` is in machine `{}`, which does not exist. Machines: {}.",
                        device.name, device.machine, join(topology.machines));
    if (!(device.speed > 0 && device.speed <= 1e6))
      throw ConfigError("topology: device `{}`: speed {}. It must be above 0; 1 is the profiled device.",
                        device.name, device.speed);
    if (!(device.memory >= 0 && device.memory <= 1e18))
      throw ConfigError("topology: device `{}`: memory {}. It must be 0 bytes (unlimited) or more.",
                        device.name, device.memory);
  }
}

void check_link(const Link& link, const std::set<std::string>& names) {
  std::string where = fmt::format("topology: link {} - {}", link.a, link.b);
  for (const std::string& end : {link.a, link.b}) {
    if (names.count(end) != 0) continue;
    std::string near = nearest_name(end, {names.begin(), names.end()});
    throw ConfigError("{}: no device is named `{}`.{}", where, end,
                      near.empty() ? "" : fmt::format(" Did you mean `{}`?", near));
  }
  if (link.a == link.b) throw ConfigError("{}: a device cannot be linked to itself.", where);
  if (!(link.bandwidth > 0) || !std::isfinite(link.bandwidth))
    throw ConfigError("{}: bandwidth {}. It must be above 0 bytes per second.", where, link.bandwidth);
  if (!(link.latency >= 0) || !std::isfinite(link.latency))
    throw ConfigError("{}: latency {}. It must be 0 s or more.", where, link.latency);
  if (link.width < 1 || link.width > kWidest)
    throw ConfigError("{}: width {}. Accepted: 1..{}.", where, link.width, kWidest);
}

}  // namespace

const char* to_string(DeviceKind kind) {
  return kDeviceKinds[static_cast<size_t>(kind)];
}
const char* to_string(LinkKind kind) {
  return kLinkKinds[static_cast<size_t>(kind)];
}
DeviceKind parse_device_kind(std::string_view name) {
  return parse<DeviceKind>("device kind", name, kDeviceKinds);
}
LinkKind parse_link_kind(std::string_view name) {
  return parse<LinkKind>("link kind", name, kLinkKinds);
}

std::vector<int> workers_of(const Topology& topology) {
  for (DeviceKind kind : {DeviceKind::kGpu, DeviceKind::kCpu}) {
    std::vector<int> workers;
    for (size_t i = 0; i < topology.devices.size(); ++i) {
      if (topology.devices[i].kind == kind) workers.push_back(static_cast<int>(i));
    }
    if (!workers.empty()) return workers;
  }
  return {};
}

void validate(const Topology& topology) {
  check_devices(topology);
  if (workers_of(topology).empty())
    throw ConfigError("topology: no device of kind gpu or cpu. At least one is needed.");
  if (topology.links.size() > kMostLinks)
    throw ConfigError("topology: {} links. At most {} are accepted.", topology.links.size(), kMostLinks);
  std::set<std::string> names;
  for (const Device& device : topology.devices) names.insert(device.name);
  for (const Link& link : topology.links) check_link(link, names);
}

std::string to_string(const Topology& topology) {
  std::string out = fmt::format("[cluster]\nname = {}\n", quoted(topology.name));
  for (const std::string& machine : topology.machines)
    out += fmt::format("\n[[machine]]\nname = {}\n", quoted(machine));
  for (const Device& device : topology.devices) {
    out += fmt::format("\n[[device]]\nname = {}\nmachine = {}\nkind = \"{}\"\n", quoted(device.name),
                       quoted(device.machine), to_string(device.kind));
    if (device.speed != 1) out += fmt::format("speed = {}\n", number(device.speed));
    if (device.memory > 0) out += fmt::format("memory = {}\n", number(device.memory));
  }
  for (const Link& link : topology.links) {
    out +=
        fmt::format("\n[[link]]\na = {}\nb = {}\nkind = \"{}\"\nbandwidth = {}\nlatency = {}\nwidth = {}\n",
                    quoted(link.a), quoted(link.b), to_string(link.kind), number(link.bandwidth),
                    number(link.latency), link.width);
  }
  return out;
}

}  // namespace yoke::cluster
