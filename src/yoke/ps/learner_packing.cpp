// The part of Learner that pushes gradients in fewer bytes (ps/packing.h).
#include <algorithm>

#include "yoke/ps/add_scaled.h"
#include "yoke/ps/learner.h"

namespace yoke::ps {

// Encodes the gradient of a range together with what was left out of earlier ones. Zeros that stand for an
// overflow are no gradient: nothing is left out of them.
void Learner::pack_range(size_t index, const Gradient& gradient) {
  if (!options_.packing.active()) return;
  packed_.resize(own_.size());
  const Range& range = own_range(index);
  const std::span<const std::byte> values(at(gradient.data, range), bytes_of(range));
  if (!options_.packing.feeds_back() || gradient.overflow) {
    packed_[index] = pack(options_.packing, values, options_.type);
    return;
  }
  if (left_out_.empty()) left_out_.resize(static_cast<size_t>(elements()) * element_);
  const std::span<std::byte> left(at(left_out_.data(), range), values.size());
  add_scaled(options_.type, left.data(), values.data(), 1, range.count);
  packed_[index] = pack(options_.packing, left, options_.type);
  scratch_.resize(std::max(scratch_.size(), values.size()));
  const std::span<std::byte> sent = std::span(scratch_).first(values.size());
  unpack(packed_[index].encoding, packed_[index].bytes, options_.type, sent);
  add_scaled(options_.type, left.data(), sent.data(), -1, range.count);
}

void Learner::count_pushed() {
  if (!options_.packing.active()) bytes_pushed_ += elements() * static_cast<int64_t>(element_);
  for (const Packed& one : packed_) bytes_pushed_ += static_cast<int64_t>(one.bytes.size());
}

}  // namespace yoke::ps
