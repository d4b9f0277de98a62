#include "yoke/parallel/sync/servers/host_copies.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <vector>

namespace yoke::parallel {
namespace {

TEST(HostCopies, OnACpuACopyIsThereAtOnce) {
  HostCopies copies(torch::kCPU);
  torch::Tensor to = torch::zeros({5}), from = torch::arange(5, torch::kFloat);
  copies.copy(to, from);
  EXPECT_TRUE(copies.mark().is_done());
  EXPECT_TRUE(torch::equal(to, from));
}

// Each gradient is still computed when its copy is asked for, and changed as soon as its mark is done.
TEST(HostCopies, AMarkCoversWhatWasStillBeingComputed) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  HostCopies copies(torch::kCUDA);
  const torch::Tensor factor = torch::full({2048, 2048}, 1.0 / 2048, torch::kCUDA);
  torch::Tensor value = torch::full({2048, 2048}, 3.0, torch::kCUDA);
  std::vector<torch::Tensor> hosts;
  std::vector<HostCopies::Mark> marks;
  for (int i = 0; i < 20; ++i) {
    value = value.mm(factor) + 1;
    hosts.push_back(torch::zeros({2048, 2048}, torch::TensorOptions().pinned_memory(true)));
    copies.copy(hosts.back(), value);
    marks.push_back(copies.mark());
  }
  for (int i = 0; i < 20; ++i) {
    marks[static_cast<size_t>(i)].wait();
    EXPECT_TRUE(marks[static_cast<size_t>(i)].is_done());
    EXPECT_NEAR(hosts[static_cast<size_t>(i)].mean().item<double>(), 4.0 + i, 1e-2) << i;
  }
}

// 16-bit gradients of a model are pushed as fp32.
TEST(HostCopies, ConvertsOnTheWay) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  HostCopies copies(torch::kCUDA);
  const torch::Tensor from = torch::arange(300, torch::TensorOptions(torch::kCUDA).dtype(torch::kBFloat16));
  torch::Tensor to = torch::zeros({300}, torch::TensorOptions().pinned_memory(true));
  copies.copy(to, from);
  copies.mark().wait();
  EXPECT_TRUE(torch::equal(to, from.cpu().to(torch::kFloat)));
}

}  // namespace
}  // namespace yoke::parallel
