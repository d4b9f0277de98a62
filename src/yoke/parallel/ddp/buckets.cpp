#include "yoke/parallel/ddp/buckets.h"

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

torch::Tensor tensor_over(comm::Memory memory, int64_t elements, const torch::Tensor& like) {
  void* data = memory.data.get();
  return torch::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) {},
      torch::TensorOptions().dtype(like.scalar_type()).device(like.device()));
}

// In the parameter's own layout (channels last, for example), so that optimizers walk both alike.
torch::Tensor place_in(const torch::Tensor& flat, int64_t offset, const torch::Tensor& parameter) {
  torch::Tensor part = flat.narrow(0, offset, parameter.numel());
  if (parameter.is_non_overlapping_and_dense())
    return part.as_strided(parameter.sizes(), parameter.strides());
  return part.view(parameter.sizes());
}

}  // namespace

std::vector<Bucket> make_buckets(std::vector<Slot>& slots, const std::vector<std::vector<int64_t>>& plan,
                                 comm::Communicator& comm) {
  torch::NoGradGuard no_grad;
  std::vector<Bucket> buckets;
  for (const std::vector<int64_t>& indices : plan) {
    Bucket bucket;
    int64_t elements = 0;
    for (int64_t index : indices) elements += slots[static_cast<size_t>(index)].parameter.numel();
    const torch::Tensor& first = slots[static_cast<size_t>(indices[0])].parameter;
    size_t bytes = static_cast<size_t>(elements) * first.element_size();
    bucket.data.index = static_cast<int>(buckets.size());
    bucket.data.comm = &comm;
    bucket.data.flat = tensor_over(comm.allocate(std::max<size_t>(bytes, 1)), elements, first);
    int64_t offset = 0;
    for (int64_t index : indices) {
      Slot& slot = slots[static_cast<size_t>(index)];
      slot.bucket = buckets.size();
      slot.view = place_in(bucket.data.flat, offset, slot.parameter);
      bucket.slots.push_back(static_cast<size_t>(index));
      bucket.data.parts.push_back(slot.view);
      bucket.data.offsets.push_back(offset);
      offset += slot.parameter.numel();
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
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
