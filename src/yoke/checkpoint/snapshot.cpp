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

// Indices of the tensors in the order of the file, so that they are written without a copy.
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
  // Huge pages save a quarter of a million page faults per gigabyte. Only a hint.
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
  memory_.reset();  // before allocating: there may not be room for both
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  pinned_ = any_on_cuda(tensors);
  memory_ = make_memory(bytes, pinned_);
  copies_.resize(tensors.size());
  std::byte* next = page_begin(memory_);
  order_ = file_order(tensors);
  for (size_t i : order_) {
    const auto& [name, tensor] = tensors[i];
    copies_[i] = {name, at::from_blob(next, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()))};
    next += tensor.nbytes();
  }
}

const std::vector<NamedTensor>& Snapshot::begin(const std::vector<NamedTensor>& tensors) {
  reserve(tensors);
  std::lock_guard lock(mutex_);
  filled_ = nullptr;
  given_up_ = nullptr;
  return copies_;
}

void Snapshot::fill(const std::vector<NamedTensor>& tensors) {
  at::NoGradGuard no_grad;
  for (size_t i : order_) {
    torch::Tensor& copy = copies_[i].second;
    copy.copy_(tensors[i].second, /*non_blocking=*/true);
    if (!pinned_) publish(static_cast<const std::byte*>(copy.data_ptr()) + copy.nbytes());
  }
  if (pinned_) torch::cuda::synchronize();
  publish(reinterpret_cast<const std::byte*>(UINTPTR_MAX));
}

void Snapshot::publish(const std::byte* end) {
  std::lock_guard lock(mutex_);
  filled_ = std::max(filled_, end);
  more_.notify_all();
}

void Snapshot::wait_until_filled(const void* end) {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return filled_ >= end || given_up_; });
  if (given_up_) std::rethrow_exception(given_up_);
}

void Snapshot::give_up(std::exception_ptr why) {
  std::lock_guard lock(mutex_);
  given_up_ = std::move(why);
  more_.notify_all();
}

}  // namespace yoke::checkpoint
