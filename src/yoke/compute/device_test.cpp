#include "yoke/compute/device.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/compute/device_cuda.h"

namespace yoke::compute {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& name) {
  try {
    resolve_device(name);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Device, ResolvesNames) {
  EXPECT_EQ(resolve_device("cpu"), torch::Device(torch::kCPU));
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"}) {
    EXPECT_THAT(refusal(name), HasSubstr("cpu, cuda, cuda:N")) << name;
  }
}

TEST(Device, SaysWhyCudaCannotBeUsed) {
  if (!cuda::built()) {
    EXPECT_THAT(refusal("cuda"), HasSubstr("--preset cuda"));
  } else if (cuda::device_count() == 0) {
    EXPECT_THAT(refusal("cuda"), HasSubstr("nvidia-smi"));
  } else {
    EXPECT_EQ(resolve_device("cuda"), torch::Device(torch::kCUDA, 0));
    EXPECT_THAT(refusal("cuda:99"), HasSubstr("cuda:0 to"));
    EXPECT_THAT(refusal("cuda:99999999999999999999"), HasSubstr("cuda:0 to"));
  }
}

TEST(Device, HasAName) {
  EXPECT_FALSE(device_name(torch::kCPU).empty());
}

TEST(Device, ThreadsAreSet) {
  int before = at::get_num_threads();
  set_threads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  set_threads(0);
  EXPECT_GE(at::get_num_threads(), 1);
  set_threads(before);
}

TEST(Device, PeakMemoryGrowsWithWhatIsTouched) {
  torch::Device cpu(torch::kCPU);
  synchronize(cpu);
  reset_peak_memory(cpu);
  int64_t before = peak_memory_bytes(cpu);
  EXPECT_GT(before, 0);
  constexpr int64_t kBytes = 64 << 20;
  // Fresh pages from the kernel: malloc may hand out memory that is resident already.
  void* fresh = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(fresh, MAP_FAILED);
  std::memset(fresh, 1, kBytes);
  EXPECT_GE(peak_memory_bytes(cpu), before + kBytes / 2);
  ::munmap(fresh, kBytes);
}

}  // namespace
}  // namespace yoke::compute
