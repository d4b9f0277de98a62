#include "yoke/parallel/placement/slice/sliced_weights.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace yoke::parallel {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const void*, SlicedWeightRef> by_tensor;
};

Table& table() {
  static Table all;
  return all;
}

// torch::nn::Linear computes with weight.t(), a tensor of its own over the same memory.
bool is_transposed_view(const torch::Tensor& view, const torch::Tensor& weight) {
  return view.const_data_ptr() == weight.const_data_ptr() && view.size(0) == weight.size(1) &&
         view.size(1) == weight.size(0) && view.stride(0) == weight.stride(1);
}

struct Holder : torch::CustomClassHolder {
  explicit Holder(SlicedWeightRef ref) : weight(std::move(ref)) {}
  SlicedWeightRef weight;
};

}  // namespace

c10::IValue to_value(const SlicedWeightRef& weight) {
  return c10::IValue::make_capsule(c10::make_intrusive<Holder>(weight));
}

SlicedWeightRef from_value(const c10::IValue& value) {
  return static_cast<const Holder&>(*value.toCapsule()).weight;
}

void SlicedWeights::add(const SlicedWeightRef& weight) {
  std::unique_lock lock(table().mutex);
  table().by_tensor[weight->weight.unsafeGetTensorImpl()] = weight;
}

void SlicedWeights::remove(const SlicedWeightRef& weight) {
  std::unique_lock lock(table().mutex);
  table().by_tensor.erase(weight->weight.unsafeGetTensorImpl());
}

SlicedWeightRef SlicedWeights::find(const torch::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  std::shared_lock lock(table().mutex);
  auto found = table().by_tensor.find(tensor.unsafeGetTensorImpl());
  if (found != table().by_tensor.end()) return found->second;
  if (tensor.dim() != 2 || tensor.layout() != at::kStrided || tensor.numel() == 0) return nullptr;
  SlicedWeightRef other;  // ranks that are threads may have their weights in common
  for (const auto& [impl, weight] : table().by_tensor) {
    if (weight->weight.dim() != 2 || !is_transposed_view(tensor, weight->weight)) continue;
    if (weight->rank == std::this_thread::get_id()) return weight;
    other = weight;
  }
  return other;
}

}  // namespace yoke::parallel
