// Buckets of gradients as DistributedDataParallel makes them. For tests of hooks.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

using Shapes = std::vector<std::vector<int64_t>>;

inline GradientBucket bucket_of(comm::Communicator& comm, const Shapes& shapes,
                                torch::ScalarType type = torch::kFloat32, int index = 0) {
  GradientBucket bucket;
  bucket.index = index;
  bucket.comm = &comm;
  bucket.divisor = comm.size();
  int64_t size = 0;
  for (const auto& shape : shapes) {
    bucket.offsets.push_back(size);
    size += c10::multiply_integers(shape);
  }
  bucket.flat = torch::zeros({size}, type);
  bucket.elements = size;
  bucket.options = bucket.flat.options();
  for (size_t i = 0; i < shapes.size(); ++i)
    bucket.parts.push_back(
        bucket.flat.narrow(0, bucket.offsets[i], c10::multiply_integers(shapes[i])).view(shapes[i]));
  return bucket;
}

inline void reduce(CommHook& hook, GradientBucket& bucket) {
  for (int phase = 0; hook.advance(bucket, phase); ++phase) ASSERT_LT(phase, 10);
}

// Random numbers that differ over ranks and steps; parts have sizes of their own, as layers do.
inline void draw(GradientBucket& bucket, int64_t step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(
      static_cast<uint64_t>(1000 * step + 10 * bucket.index + bucket.comm->rank()));
  bucket.flat.copy_(torch::randn(bucket.flat.sizes(), generator, torch::kFloat64));
  for (size_t i = 0; i < bucket.parts.size(); ++i) bucket.parts[i].mul_(1.0 / static_cast<double>(i + 1));
}

// The average that an uncompressed all_reduce gives, in fp64.
inline torch::Tensor true_average(const GradientBucket& bucket) {
  torch::Tensor sum = bucket.flat.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true);
  comm::all_reduce(*bucket.comm, sum, ReduceOp::kSum, "truth");
  return sum.div_(bucket.divisor);
}

inline double relative_error(const torch::Tensor& value, const torch::Tensor& truth) {
  return ((value.to(torch::kFloat64) - truth).norm() / truth.norm()).item<double>();
}

// Whether all ranks hold the same bytes.
inline bool same_bits(comm::Communicator& comm, const torch::Tensor& tensor) {
  torch::Tensor bytes = tensor.contiguous().view(torch::kUInt8).view({1, -1});
  torch::Tensor all = comm::all_gather(comm, bytes, "compare");
  return all.eq(all[0]).all().item<bool>();
}

}  // namespace yoke::parallel
