#include "yoke/compute/allocator.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace yoke::compute {
namespace {

TEST(KeepFreedMemory, HandsTheSameBlockToTheNextTensorAndReturnsItWhenAsked) {
  keep_freed_memory();
  keep_freed_memory();
  release_kept_memory();
  const void* before = nullptr;
  {
    torch::Tensor x = torch::ones({1 << 20});
    before = x.data_ptr();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(before) % 64, 0u);
  }
  {
    torch::Tensor y = torch::ones({(1 << 20) - 1000});
    EXPECT_EQ(y.data_ptr(), before);
    EXPECT_EQ(y.sum().item<float>(), (1 << 20) - 1000);
  }
  EXPECT_GE(release_kept_memory(), 4 << 20);
  EXPECT_EQ(release_kept_memory(), 0);
}

TEST(KeepFreedMemory, HandlesEmptySmallAndHugeTensors) {
  keep_freed_memory();
  for (int64_t count : {0, 1, 1000, 65'000, 66'000, 600'000, 10'000'000}) {
    torch::Tensor x = torch::full({count}, 2.0f);
    EXPECT_EQ(x.sum().item<float>(), 2.0f * static_cast<float>(count));
  }
}

TEST(KeepFreedMemory, ReturnsWhatNobodyUsesBeforeItExceedsALimit) {
  keep_freed_memory();
  release_kept_memory();
  auto touch = [](int64_t megabytes) { torch::ones({megabytes << 18}); };
  touch(64);
  limit_kept_memory(1);
  touch(32);  // of another size: the 64 MB go first
  limit_kept_memory(0);
  int64_t kept = release_kept_memory();
  EXPECT_GE(kept, 32 << 20);
  EXPECT_LT(kept, 64 << 20);
}

TEST(KeepFreedMemory, AnImpossibleSizeIsAnErrorAndNotTheEnd) {
  keep_freed_memory();
  EXPECT_THROW(torch::empty({int64_t{1} << 45}), c10::Error);
}

}  // namespace
}  // namespace yoke::compute
