#include "yoke/parallel/common/ddp/hooks/feedback.h"

#include <fmt/core.h>

#include "yoke/compute/parallel.h"

namespace yoke::parallel {

torch::ScalarType working_type(const GradientBucket& bucket) {
  return bucket.flat.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor wire_tensor(const GradientBucket& bucket, int64_t count, torch::ScalarType type) {
  torch::TensorOptions options = bucket.flat.options().dtype(type);
  if (count == 0) return torch::empty({0}, options);
  comm::Memory memory = bucket.comm->allocate(static_cast<size_t>(count) * c10::elementSize(type));
  return torch::from_blob(
      memory.data.get(), {count}, [memory](void*) {}, options);
}

torch::Tensor message_tensor(const GradientBucket& bucket, int64_t bytes) {
  int64_t ranks = bucket.comm->size();
  return wire_tensor(bucket, ranks * bytes, torch::kUInt8).view({ranks, bytes}).zero_();
}

std::string name_of(const GradientBucket& bucket, const char* operation) {
  return fmt::format("{} of bucket {}", operation, bucket.index);
}

torch::Tensor& Feedback::compensate(GradientBucket& bucket) {
  torch::ScalarType type = working_type(bucket);
  bool first = !error_.defined();
  if (first) error_ = torch::zeros_like(bucket.flat, bucket.flat.options().dtype(type));
  if (bucket.flat.scalar_type() != type)
    values_ = error_ + bucket.flat;
  else
    values_ = first ? bucket.flat : bucket.flat.add_(error_);
  return values_;
}

void Feedback::store(GradientBucket& bucket) {
  if (!values_.is_same(bucket.flat)) bucket.flat.copy_(values_);
  values_ = torch::Tensor();
}

void for_blocks(int64_t count, int64_t unit, const std::function<void(int64_t begin, int64_t end)>& body) {
  constexpr int64_t kBlock =
      16384;  // numbers that stay in the second cache while several passes go over them
  int64_t block = std::max(unit, kBlock / unit * unit);
  int64_t blocks = (count + block - 1) / block;
  compute::parallel_for(blocks, count, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i * block, std::min((i + 1) * block, count));
  });
}

}  // namespace yoke::parallel
