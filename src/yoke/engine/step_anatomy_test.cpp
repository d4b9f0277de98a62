#include "yoke/engine/step_anatomy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace yoke::engine {
namespace {

WorkerOptions small_gpt2(const std::string& recompute) {
  WorkerOptions options;
  options.model.name = "gpt2";
  options.model.layers = 6;
  options.model.heads = 2;
  options.model.width = 32;
  options.model.vocabulary = 64;
  options.model.positions = 32;
  options.batch_size = 4;
  options.compute.threads = 1;
  options.compute.recompute = recompute;
  return options;
}

int64_t peak_of(const PassTrace& pass) {
  int64_t peak = 0;
  for (const compute::MemoryPoint& point : pass.points) peak = std::max(peak, point.bytes);
  return peak;
}

TEST(StepAnatomy, MemoryRisesInForwardAndReturnsInBackward) {
  const StepAnatomy anatomy = dissect_step(small_gpt2("none"));
  ASSERT_GT(anatomy.pass.points.size(), 10U);
  EXPECT_EQ(anatomy.pass.points.front().bytes, 0);
  EXPECT_LT(anatomy.pass.points.back().bytes, peak_of(anatomy.pass) / 10);
  EXPECT_GT(anatomy.pass.forward_end, 0);
  EXPECT_LT(anatomy.pass.forward_end, anatomy.pass.points.back().seconds);
  for (size_t i = 1; i < anatomy.pass.points.size(); ++i)
    EXPECT_LE(anatomy.pass.points[i - 1].seconds, anatomy.pass.points[i].seconds);
  EXPECT_GE(peak_of(anatomy.pass), anatomy.activation_bytes);
  EXPECT_EQ(anatomy.block_names.size(), anatomy.blocks.size());
  EXPECT_EQ(anatomy.forward_calls, anatomy.blocks.size());
}

TEST(StepAnatomy, RecomputationLowersThePeakAndRunsBlocksTwice) {
  const StepAnatomy none = dissect_step(small_gpt2("none")), blocks = dissect_step(small_gpt2("blocks"));
  EXPECT_LT(peak_of(blocks.pass), peak_of(none.pass) * 3 / 4);
  EXPECT_LT(blocks.activation_bytes, none.activation_bytes);
  EXPECT_EQ(blocks.forward_calls, 2 * blocks.blocks.size() - 1);  // the last one is kept
}

TEST(StepAnatomy, CountsGradientsByTheirSize) {
  const GradientSizes sizes = dissect_step(small_gpt2("none")).gradients;
  ASSERT_FALSE(sizes.counts.empty());
  EXPECT_GT(sizes.counts.front(), 0);
  EXPECT_GT(sizes.counts.back(), 0);
  EXPECT_LT(sizes.lowest_exponent + static_cast<int>(sizes.counts.size()), 8);  // none is larger than 2^8
  const int64_t all = std::accumulate(sizes.counts.begin(), sizes.counts.end(), sizes.zeros);
  WorkerOptions options = small_gpt2("none");
  EXPECT_EQ(all, make_worker(options)->parameters);
}

TEST(StepAnatomy, MeasuresTheDevice) {
  const StepAnatomy anatomy = dissect_step(small_gpt2("none"));
  EXPECT_GT(anatomy.matmul_flops, 1e8);
  EXPECT_GT(anatomy.copy_bytes_per_s, 1e7);
  EXPECT_GT(anatomy.flops_per_sample, 1e5);
  EXPECT_GT(anatomy.needs.sample, 0);
  EXPECT_GT(anatomy.held.weights, 0);
}

}  // namespace
}  // namespace yoke::engine
