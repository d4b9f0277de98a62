// Counts the tensor memory that this thread allocates, by LibTorch's own reports.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace yoke::compute {

// Counts what is allocated while it lives and not yet freed, on the CPU and on CUDA, by this thread and by
// backward passes it starts. Takes the place of a profiler that runs in this thread. Meters nest; only the
// innermost counts.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t current_bytes() const;
  int64_t peak_bytes() const;
  // The peak starts again from the current use.
  void reset_peak();

 private:
  class Reporter;
  std::shared_ptr<Reporter> reporter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace yoke::compute
