#include "yoke/checkpoint/snapshot.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <torch/cuda.h>

#include <algorithm>
#include <numeric>

namespace yoke::checkpoint {
namespace {

constexpr uintptr_t kPage = 4096;

std::byte* page_begin(const torch::Tensor& memory) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data_ptr()) + kPage - 1) / kPage *
                                      kPage);
}

// Positions of the tensors in the order in which they will lie in the file: then they are written without a
// copy.
std::vector<size_t> file_order(const std::vector<NamedTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return format::comes_before(tensors[a].second.element_size(), tensors[a].first,
                                tensors[b].second.element_size(), tensors[b].first);
  });
  return order;
}

bool any_on_cuda(const std::vector<NamedTensor>& tensors) {
  return std::ranges::any_of(tensors, [](const NamedTensor& t) { return t.second.is_cuda(); });
}

torch::Tensor make_memory(size_t bytes, bool pinned) {
  auto memory = at::empty({static_cast<int64_t>(bytes + kPage)},
                          at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  // Large pages: a quarter of a million page faults less per gigabyte. Only a hint.
  if (!pinned) ::madvise(page_begin(memory), bytes, MADV_HUGEPAGE);
  return memory.zero_();
}

}  // namespace

bool Snapshot::fits(const std::vector<NamedTensor>& tensors) const {
  return memory_.defined() && pinned_ == any_on_cuda(tensors) &&
         std::ranges::equal(tensors, copies_, [](const NamedTensor& a, const NamedTensor& b) {
           return a.first == b.first && a.second.scalar_type() == b.second.scalar_type() &&
                  a.second.sizes() == b.second.sizes();
         });
}

void Snapshot::reserve(const std::vector<NamedTensor>& tensors) {
  if (fits(tensors)) return;
  copies_.clear();
  memory_.reset();  // before the new memory is made: there may not be room for both
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  pinned_ = any_on_cuda(tensors);
  memory_ = make_memory(bytes, pinned_);
  copies_.resize(tensors.size());
  std::byte* next = page_begin(memory_);
  for (size_t i : file_order(tensors)) {
    const auto& [name, tensor] = tensors[i];
    copies_[i] = {name, at::from_blob(next, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()))};
    next += tensor.nbytes();
  }
}

const std::vector<NamedTensor>& Snapshot::take(const std::vector<NamedTensor>& tensors) {
  reserve(tensors);
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i)
    copies_[i].second.copy_(tensors[i].second, /*non_blocking=*/true);
  if (pinned_) torch::cuda::synchronize();
  return copies_;
}

}  // namespace yoke::checkpoint
