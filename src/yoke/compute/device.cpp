#include "yoke/compute/device.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "yoke/base/cpu.h"
#include "yoke/base/error.h"
#include "yoke/compute/allocator.h"
#include "yoke/compute/device_cuda.h"

namespace yoke::compute {
namespace {

// If the kernel does not allow resetting its peak: the resident set at the time of the reset; else -1.
std::atomic<int64_t> resident_at_reset{-1};

torch::Device cuda_device(const std::string& name) {
  if (!cuda::built()) {
    throw ConfigError(
        "train.device = \"{}\": this build has no CUDA support. Hint: build with `cmake --preset cuda` on a "
        "machine with LibTorch for CUDA, or use cpu",
        name);
  }
  int count = cuda::device_count();
  if (count == 0) {
    throw ConfigError(
        "train.device = \"{}\": no CUDA device can be used. Hint: check nvidia-smi and CUDA_VISIBLE_DEVICES, "
        "or use cpu",
        name);
  }
  // More digits than any device number has.
  std::string number = name.size() > 5 ? name.substr(5) : "0";
  int64_t index = number.size() < 6 ? std::stoll(number) : count;
  if (index >= count) {
    throw ConfigError("train.device = \"{}\": no such device. Accepted: cuda:0 to cuda:{}", name, count - 1);
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

bool names_cuda(const std::string& name) {
  return name == "cuda" || (name.starts_with("cuda:") && name.size() > 5 &&
                            name.find_first_not_of("0123456789", 5) == std::string::npos);
}

}  // namespace

torch::Device resolve_device(const std::string& name) {
  if (name == "cpu") return {torch::kCPU};
  if (names_cuda(name)) return cuda_device(name);
  throw ConfigError("train.device = \"{}\": no such device. Accepted: cpu, cuda, cuda:N", name);
}

std::string device_name(const torch::Device& device) {
  return device.is_cuda() ? cuda::device_name(device.index()) : cpu_name();
}

void set_threads(int64_t threads, int64_t ranks) {
  if (threads == 0) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int64_t cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    threads = std::max<int64_t>(1, cores / ranks);
  }
  YOKE_CHECK(threads > 0, "{} threads", threads);
  at::set_num_threads(static_cast<int>(threads));
}

int64_t peak_memory_bytes(const torch::Device& device) {
  if (device.is_cuda()) return cuda::peak_memory_bytes(device.index());
  int64_t at_reset = resident_at_reset;
  return at_reset < 0 ? status_bytes("VmHWM:") : std::max(at_reset, status_bytes("VmRSS:"));
}

int64_t memory_in_use_bytes(const torch::Device& device) {
  return device.is_cuda() ? cuda::memory_in_use_bytes(device.index()) : resident_bytes();
}

MemoryRoom memory_room(const torch::Device& device) {
  return device.is_cuda() ? cuda::memory_room(device.index()) : host_memory_room();
}

void release_freed_memory(const torch::Device& device) {
  if (device.is_cuda()) return cuda::release_freed_memory();
  release_kept_memory();
}

void reset_peak_memory(const torch::Device& device) {
  if (device.is_cuda()) return cuda::reset_peak_memory(device.index());
  // 5 sets the peak to the current resident set (proc(5)).
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  resident_at_reset = clear.good() ? -1 : status_bytes("VmRSS:");
}

void synchronize(const torch::Device& device) {
  if (device.is_cuda()) cuda::synchronize(device.index());
}

}  // namespace yoke::compute
