#include "yoke/base/error.h"
#include "yoke/compute/graph.h"

namespace yoke::compute {

std::unique_ptr<DeviceGraph> DeviceGraph::record(const std::function<void()>&, const DeviceGraph*) {
  throw ConfigError("CUDA graphs: this yoke was built without CUDA. Build with: make build PRESET=cuda");
}

void DeviceGraph::warm_up(const std::function<void()>& function) {
  function();
}

}  // namespace yoke::compute
