#include "yoke/parallel/common/ddp/buckets.h"

#include <utility>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

int64_t padded(int64_t elements, int64_t multiple) {
  return (elements + multiple - 1) / multiple * multiple;
}

}  // namespace

torch::Tensor tensor_over(comm::Memory memory, int64_t elements, const torch::TensorOptions& options) {
  void* data = memory.data.get();
  torch::Tensor flat = torch::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) {}, options.requires_grad(false));
  return flat;
}

torch::Tensor place_in(const torch::Tensor& flat, int64_t offset, const torch::Tensor& parameter) {
  torch::Tensor part = flat.narrow(0, offset, parameter.numel());
  if (parameter.is_non_overlapping_and_dense())
    return part.as_strided(parameter.sizes(), parameter.strides());
  return part.view(parameter.sizes());
}

std::vector<Bucket> make_buckets(std::vector<Slot>& slots, const BucketLayout& layout,
                                 comm::Communicator& comm,
                                 const std::function<comm::Memory(size_t)>& allocate) {
  torch::NoGradGuard no_grad;
  std::vector<Bucket> buckets;
  for (const std::vector<int64_t>& indices : layout.plan) {
    Bucket bucket;
    const torch::Tensor& first = slots[static_cast<size_t>(indices[0])].parameter;
    bucket.data.index = static_cast<int>(buckets.size());
    bucket.data.comm = &comm;
    int64_t filled = 0;
    for (int64_t index : indices) {
      Slot& slot = slots[static_cast<size_t>(index)];
      slot.bucket = buckets.size();
      bucket.slots.push_back(static_cast<size_t>(index));
      bucket.data.offsets.push_back(filled);
      filled += slot.parameter.numel();
    }
    bucket.data.elements = std::max<int64_t>(1, padded(filled, layout.multiple));
    bucket.data.options = torch::TensorOptions().dtype(first.scalar_type()).device(first.device());
    bucket.data.parts.resize(indices.size());
    if (!layout.passing) {
      auto bytes = static_cast<size_t>(bucket.data.bytes());
      bucket.data.flat = tensor_over(allocate ? allocate(bytes) : comm.allocate(bytes), bucket.data.elements,
                                     bucket.data.options);
      bucket.data.flat.narrow(0, filled, bucket.data.elements - filled).zero_();
      for (size_t i = 0; i < indices.size(); ++i) {
        Slot& slot = slots[bucket.slots[i]];
        slot.view = place_in(bucket.data.flat, bucket.data.offsets[i], slot.parameter);
        bucket.data.parts[i] = slot.view;
      }
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

torch::Tensor take_gradient(Slot& slot) {
  torch::NoGradGuard no_grad;
  torch::Tensor gradient = std::exchange(slot.parameter.mutable_grad(), torch::Tensor());
  if (!gradient.defined()) return gradient;
  YOKE_CHECK(!gradient.is_sparse(), "parameter {}: its gradient is sparse", slot.name);
  const torch::Tensor& like = slot.parameter;
  if (gradient.strides() != like.strides() || gradient.scalar_type() != like.scalar_type())
    gradient = torch::empty_strided(like.sizes(), like.strides(), like.options()).copy_(gradient);
  return gradient.as_strided({like.numel()}, {1});
}

torch::Tensor gradient_in(const Slot& slot) {
  return slot.view.detach();
}

void move_into_bucket(Slot& slot, bool as_view) {
  torch::NoGradGuard no_grad;
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined() || gradient.data_ptr() == slot.view.data_ptr()) return;
  YOKE_CHECK(!gradient.is_sparse(), "parameter {}: its gradient is sparse, but no sparse embedding owns it",
             slot.name);
  slot.view.copy_(gradient);
  if (as_view) gradient = gradient_in(slot);
}

}  // namespace yoke::parallel
