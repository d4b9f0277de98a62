#include "yoke/compute/memory_meter.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "yoke/base/clock.h"

namespace yoke::compute {

class MemoryMeter::Reporter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, int64_t size, size_t, size_t, c10::Device) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (size > 0) {
      live_[pointer] = size;
      current_ += size;
      peak_ = std::max(peak_, current_);
    } else if (auto found = live_.find(pointer); found != live_.end()) {
      current_ -= found->second;
      live_.erase(found);
    } else {
      return;
    }
    if (remembers_) history_.push_back({watch_.seconds(), current_});
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t current() {
    std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }
  int64_t peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
  }
  void reset_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    peak_ = current_;
  }
  void keep_history() {
    std::lock_guard<std::mutex> lock(mutex_);
    remembers_ = true;
    history_.push_back({watch_.seconds(), current_});
  }
  std::vector<MemoryPoint> history() {
    std::lock_guard<std::mutex> lock(mutex_);
    return history_;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> live_;  // frees of older memory do not count
  int64_t current_ = 0;
  int64_t peak_ = 0;
  bool remembers_ = false;
  std::vector<MemoryPoint> history_;
  const Stopwatch watch_;
};

MemoryMeter::MemoryMeter()
    : reporter_(std::make_shared<Reporter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, reporter_) {}

MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::current_bytes() const {
  return reporter_->current();
}
int64_t MemoryMeter::peak_bytes() const {
  return reporter_->peak();
}
void MemoryMeter::reset_peak() {
  reporter_->reset_peak();
}
void MemoryMeter::keep_history() {
  reporter_->keep_history();
}
std::vector<MemoryPoint> MemoryMeter::history() const {
  return reporter_->history();
}

}  // namespace yoke::compute
