// Records the device work of a function once and replays it: one launch instead of thousands.
#pragma once

#include <functional>
#include <memory>

namespace yoke::compute {

// CUDA graphs. Memory allocated by the function has the same addresses in every replay, so tensors it leaves
// behind are refilled each time. The function must not synchronise with the device or depend on its results.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;

  // Runs `function` once for recording (without executing its work). Throws ConfigError without CUDA.
  // `earlier`: shares that graph's memory, if not null. What the earlier one left behind stays intact if it
  // is still referenced while recording; the two must be replayed in turn, in the order of their recording.
  static std::unique_ptr<DeviceGraph> record(const std::function<void()>& function,
                                             const DeviceGraph* earlier = nullptr);

  // Runs `function` on a separate stream, which is required a few times before recording.
  static void warm_up(const std::function<void()>& function);
};

}  // namespace yoke::compute
