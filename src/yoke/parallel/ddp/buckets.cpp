#include "yoke/parallel/ddp/buckets.h"

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

int64_t padded(int64_t elements, int64_t multiple) {
  return (elements + multiple - 1) / multiple * multiple;
}

// Memory for all buckets: each its own, or blocks that they take in turn.
class BucketMemory {
 public:
  BucketMemory(std::function<comm::Memory(size_t)> allocate, size_t blocks, size_t largest)
      : allocate_(std::move(allocate)), largest_(largest) {
    blocks_.resize(blocks);
  }

  torch::Tensor get(size_t index, int64_t elements, const torch::TensorOptions& options) {
    if (blocks_.empty())
      return tensor_over(allocate_(static_cast<size_t>(elements) * options.dtype().itemsize()), elements,
                         options);
    comm::Memory& block = blocks_[index % blocks_.size()];
    if (!block.data) block = allocate_(largest_);
    return tensor_over(block, elements, options);
  }

 private:
  std::function<comm::Memory(size_t)> allocate_;
  size_t largest_;
  std::vector<comm::Memory> blocks_;
};

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
  std::vector<int64_t> elements;
  size_t largest = 0;
  for (const std::vector<int64_t>& indices : layout.plan) {
    int64_t sum = 0;
    for (int64_t index : indices) sum += slots[static_cast<size_t>(index)].parameter.numel();
    elements.push_back(std::max<int64_t>(1, padded(sum, layout.multiple)));
    size_t size = slots[static_cast<size_t>(indices[0])].parameter.element_size();
    largest = std::max(largest, static_cast<size_t>(elements.back()) * size);
  }
  auto own = [&comm](size_t bytes) { return comm.allocate(bytes); };
  BucketMemory memory(allocate ? allocate : own, layout.blocks, largest);
  std::vector<Bucket> buckets;
  for (const std::vector<int64_t>& indices : layout.plan) {
    Bucket bucket;
    const torch::Tensor& first = slots[static_cast<size_t>(indices[0])].parameter;
    bucket.data.index = static_cast<int>(buckets.size());
    bucket.data.comm = &comm;
    bucket.data.flat = memory.get(buckets.size(), elements[buckets.size()],
                                  torch::TensorOptions().dtype(first.scalar_type()).device(first.device()));
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
    if (layout.blocks == 0) bucket.data.flat.narrow(0, offset, bucket.data.flat.numel() - offset).zero_();
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
