#include "yoke/parallel/placement/sharded/flat_storage.h"

#include <torch/utils.h>

#include "yoke/base/error.h"

namespace yoke::parallel {

FlatStorage::FlatStorage(int64_t elements, torch::ScalarType type, torch::Device device)
    : options_(torch::TensorOptions().dtype(type).device(device)),
      elements_(elements),
      storage_(c10::Storage::use_byte_size_t(), static_cast<size_t>(elements) * c10::elementSize(type),
               c10::DataPtr(nullptr, device), /*allocator=*/nullptr, /*resizable=*/false) {}

void FlatStorage::fill(const comm::Memory& memory) {
  YOKE_CHECK(memory.bytes >= storage_.nbytes(), "{} bytes for a unit of {}", memory.bytes, storage_.nbytes());
  auto* owner = new std::shared_ptr<void>(memory.data);
  auto drop = [](void* context) { delete static_cast<std::shared_ptr<void>*>(context); };
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(memory.data.get(), owner, drop, options_.device()));
  present_ = true;
}

void FlatStorage::free() {
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, options_.device()));
  present_ = false;
}

torch::Tensor FlatStorage::flat() const {
  torch::NoGradGuard no_grad;
  return torch::empty({0}, options_).set_(storage_, 0, {elements_}, {1});
}

torch::Tensor FlatStorage::place(int64_t offset, const torch::Tensor& like) const {
  torch::NoGradGuard no_grad;
  torch::Tensor view = torch::empty({0}, options_);
  if (like.is_non_overlapping_and_dense()) return view.set_(storage_, offset, like.sizes(), like.strides());
  return view.set_(storage_, offset, like.sizes());
}

}  // namespace yoke::parallel
