#include "yoke/parallel/common/ddp/hooks/message_format.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/kernels/compress.h"

namespace yoke::parallel {

MessageFormat::MessageFormat(const Packing& packing, Part first, Part second, Pack pack_with, Add add_with)
    : packing_(&packing), first_(first), second_(second), pack_(pack_with), add_(add_with) {}

int64_t MessageFormat::bytes() const {
  // Pads the message so that the next one is aligned for its first part.
  auto unit = static_cast<int64_t>(c10::elementSize(first_.type));
  return (first_.bytes() + second_.bytes() + unit - 1) / unit * unit;
}

torch::Tensor MessageFormat::first_of(const torch::Tensor& messages) const {
  return messages.narrow(-1, 0, first_.bytes()).view(first_.type);
}

torch::Tensor MessageFormat::second_of(const torch::Tensor& messages) const {
  return messages.narrow(-1, first_.bytes(), second_.bytes()).view(second_.type);
}

void MessageFormat::pack(const torch::Tensor& x, const torch::Tensor& message) const {
  (packing_->*pack_)(x, first_of(message), second_of(message));
}

void MessageFormat::add(Sums sums, const torch::Tensor& messages) const {
  (packing_->*add_)(sums, first_of(messages), second_of(messages));
}

void MessageFormat::replace_if_finite(const torch::Tensor& target, const torch::Tensor& messages,
                                      const std::function<void(const torch::Tensor& fresh)>& write) const {
  packing_->replace_if_finite(target, first_of(messages), write);
}

MessageFormat sign_format(const Packing& packing, int64_t count) {
  int64_t chunks = kernels::chunks_of(count, kernels::kSignChunk);
  return {packing,
          {chunks, torch::kFloat32},
          {(count + 7) / 8, torch::kUInt8},
          &Packing::pack_signs,
          &Packing::add_signs};
}

MessageFormat int8_format(const Packing& packing, int64_t count) {
  int64_t chunks = kernels::chunks_of(count, kernels::kQuantumChunk);
  return {
      packing, {chunks, torch::kFloat32}, {count, torch::kInt8}, &Packing::quantise, &Packing::add_quanta};
}

MessageFormat topk_format(const Packing& packing, int64_t count, torch::ScalarType type, double fraction) {
  YOKE_CHECK(count <= std::numeric_limits<int32_t>::max(), "a bucket of {} numbers", count);
  auto wanted = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(count)));
  int64_t kept = std::clamp<int64_t>(wanted, 1, count);
  return {packing, {kept, type}, {kept, torch::kInt32}, &Packing::find_largest, &Packing::add_places};
}

}  // namespace yoke::parallel
