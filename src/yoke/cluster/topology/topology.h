// Machines, devices and links, as plain data.
//
// Comes from a preset, a file (cluster.toml) or discovery; used by the ring search and the simulator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cluster {

enum class DeviceKind : uint8_t { kGpu, kCpu, kSwitch, kNic };
enum class LinkKind : uint8_t { kNvlink, kPcie, kQpi, kNetwork, kMemory };

const char* to_string(DeviceKind kind);               // "gpu", "cpu", "switch", "nic"
const char* to_string(LinkKind kind);                 // "nvlink", "pcie", "qpi", "network", "memory"
DeviceKind parse_device_kind(std::string_view name);  // throw ConfigError listing what is accepted
LinkKind parse_link_kind(std::string_view name);

struct Device {
  std::string name;
  std::string machine;  // empty: a switch between machines
  DeviceKind kind = DeviceKind::kGpu;
  double speed = 1;   // relative to the device a profile was measured on
  double memory = 0;  // bytes; 0: unknown
  bool operator==(const Device&) const = default;
};

// Between two devices; full duplex with the same speed in both directions.
struct Link {
  std::string a;
  std::string b;
  LinkKind kind = LinkKind::kPcie;
  double bandwidth = 0;  // bytes per second and direction of a single link
  double latency = 0;    // seconds
  int width = 1;         // number of parallel links
  double capacity() const { return bandwidth * width; }
  bool operator==(const Link&) const = default;
};

struct Topology {
  std::string name;
  std::vector<std::string> machines;
  std::vector<Device> devices;
  std::vector<Link> links;
  bool operator==(const Topology&) const = default;
};

// Indices of the devices that take part in collectives, in order: the GPUs, or the CPUs if there are none.
std::vector<int> workers_of(const Topology& topology);

// Throws ConfigError that names the device or link: duplicate names, unknown ends, numbers out of range.
void validate(const Topology& topology);

// In cluster.toml format; parse_topology() restores the same value.
std::string to_string(const Topology& topology);

// Format: docs/design/topology.md. Throws ConfigError with file and line. The result is valid.
Topology parse_topology(std::string_view text, const std::string& file_name);
Topology read_topology(const std::filesystem::path& path);

}  // namespace yoke::cluster
