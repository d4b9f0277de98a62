// Any bytes as cluster.toml: an error, or a topology whose text reads back as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/cluster/topology/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::cluster;
  try {
    Topology topology = parse_topology({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (topology.devices.size() > 1000) return 0;
    YOKE_CHECK(parse_topology(to_string(topology), "again.toml") == topology, "the text does not read back");
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
