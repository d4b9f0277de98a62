// Records the device work of a function once and replays it: one launch instead of thousands.
#pragma once

#include <functional>
#include <memory>

namespace yoke::compute {

// CUDA graphs. Memory that the function allocates stays at the same addresses in every replay, so the tensors
// it leaves behind are filled anew each time. The function must not wait for the device or depend on its
// results.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;

  // Runs `function` once for recording (its work is not done). Throws ConfigError where there is no CUDA.
  static std::unique_ptr<DeviceGraph> record(const std::function<void()>& function);

  // Runs `function` on a stream of its own, as must be done a few times before recording.
  static void warm_up(const std::function<void()>& function);
};

}  // namespace yoke::compute
