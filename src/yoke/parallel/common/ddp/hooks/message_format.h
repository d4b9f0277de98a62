// Layout of messages with packed gradients. The same on every device; see packing.h for the packing.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

#include "yoke/parallel/common/ddp/hooks/packing.h"

namespace yoke::parallel {

// Two parts: scales and scaled values, or values and their positions. For a fixed number of gradients of one
// type; fewer fit too. Messages are uint8 tensors, [bytes] or [ranks, bytes].
class MessageFormat {
 public:
  struct Part {
    int64_t count;
    torch::ScalarType type;
    int64_t bytes() const { return count * static_cast<int64_t>(c10::elementSize(type)); }
  };
  using Pack = decltype(&Packing::quantise);
  using Add = decltype(&Packing::add_quanta);

  // `first` holds numbers that are finite if and only if all gradients are.
  MessageFormat(const Packing& packing, Part first, Part second, Pack pack_with, Add add_with);

  // Size of one message.
  int64_t bytes() const;

  // Bytes that `x` does not need are not changed.
  void pack(const torch::Tensor& x, const torch::Tensor& message) const;

  // See PackedSum.
  void add(Sums sums, const torch::Tensor& messages) const;

  // Calls write(fresh) once and replaces `target` by `fresh`, unless a gradient in one of the messages was
  // not finite. `fresh` may be undefined if that is known in advance.
  void replace_if_finite(const torch::Tensor& target, const torch::Tensor& messages,
                         const std::function<void(const torch::Tensor& fresh)>& write) const;

 private:
  torch::Tensor first_of(const torch::Tensor& messages) const;
  torch::Tensor second_of(const torch::Tensor& messages) const;

  const Packing* packing_;
  Part first_, second_;
  Pack pack_;
  Add add_;
};

MessageFormat sign_format(const Packing& packing, int64_t count);
MessageFormat int8_format(const Packing& packing, int64_t count);
// The largest `fraction` of the values, at least one.
MessageFormat topk_format(const Packing& packing, int64_t count, torch::ScalarType type, double fraction);

}  // namespace yoke::parallel
