// Counts the tensor memory allocated by this thread, from LibTorch's own reports.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace yoke::compute {

// Memory in use from a moment on, in seconds since the meter was made.
struct MemoryPoint {
  double seconds = 0;
  int64_t bytes = 0;
};

// Counts memory allocated while it exists and not yet freed, on the CPU and on CUDA, by this thread and by
// backward passes it starts. Replaces a profiler running in this thread. Meters nest; only the innermost
// counts.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t current_bytes() const;
  int64_t peak_bytes() const;
  // Restarts the peak from the current use.
  void reset_peak();

  // From here on every change is remembered.
  void keep_history();
  std::vector<MemoryPoint> history() const;

 private:
  class Reporter;
  std::shared_ptr<Reporter> reporter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace yoke::compute
