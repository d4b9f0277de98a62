#include "yoke/ps/sparse/held.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {
namespace {

template <class T>
void merge(std::vector<Key>& keys, std::vector<std::byte>& values, std::span<const Key> more_keys,
           std::span<const std::byte> more_values, double scale, size_t width) {
  std::vector<Key> all;
  std::vector<std::byte> sums;
  all.reserve(keys.size() + more_keys.size());
  sums.resize((keys.size() + more_keys.size()) * width * sizeof(T));
  const auto* a = reinterpret_cast<const T*>(values.data());
  const auto* b = reinterpret_cast<const T*>(more_values.data());
  auto* out = reinterpret_cast<T*>(sums.data());
  const T factor = static_cast<T>(scale);
  for (size_t i = 0, j = 0; i < keys.size() || j < more_keys.size(); out += width) {
    const bool first = j == more_keys.size() || (i < keys.size() && keys[i] <= more_keys[j]);
    const bool second = i == keys.size() || (j < more_keys.size() && more_keys[j] <= keys[i]);
    all.push_back(first ? keys[i] : more_keys[j]);
    for (size_t k = 0; k < width; ++k) {
      T sum = first ? a[i * width + k] : T{0};
      if (second) sum += factor * b[j * width + k];
      out[k] = sum;
    }
    i += first ? 1 : 0;
    j += second ? 1 : 0;
  }
  sums.resize(all.size() * width * sizeof(T));
  keys = std::move(all);
  values = std::move(sums);
}

template <class T>
double square_of(const std::vector<std::byte>& values, double weight) {
  double sum = 0;
  const auto* data = reinterpret_cast<const T*>(values.data());
  for (size_t i = 0; i < values.size() / sizeof(T); ++i) {
    const double one = weight * static_cast<double>(data[i]);
    sum += one * one;
  }
  return sum;
}

}  // namespace

bool HeldGradients::has(const Name& name, const PushTableHead& head) const {
  auto found = held_.find(name);
  if (found == held_.end()) return false;
  const HeldGradient& held = found->second;
  if (held.parts.size() != static_cast<size_t>(head.parts) || held.scale != head.scale)
    throw CommError("worker {} pushed part {} of {} of minibatch {}, after one of {}; nothing was applied",
                    std::get<0>(name), head.part, head.parts, head.sequence, held.parts.size());
  return held.parts[static_cast<size_t>(head.part)].has_value();
}

void HeldGradients::add(const Name& name, const PushTableHead& head, HeldPart part) {
  const int worker = std::get<0>(name);
  const size_t bytes = part.keys.size() * sizeof(Key) + part.values.size() + sizeof(HeldPart);
  const size_t entry = static_cast<size_t>(head.parts) * sizeof(std::optional<HeldPart>);
  const bool is_new = held_.find(name) == held_.end();
  size_t& own = bytes_[static_cast<size_t>(worker)];
  if (own + bytes + (is_new ? entry : 0) > kMostBytes)
    throw CommError("worker {} has {} bytes of gradients waiting for updates: at most {} are accepted",
                    worker, own + bytes, kMostBytes);
  HeldGradient& held = held_[name];
  if (is_new) {
    held.parts.resize(static_cast<size_t>(head.parts));
    held.scale = head.scale;
    held.bytes = entry;
    own += entry;
  }
  auto slot = held.parts.begin() + head.part;
  // The nearest parts of the same table on both sides.
  auto same = [&](const std::optional<HeldPart>& other) {
    return other && other->table == part.table && !other->keys.empty();
  };
  if (!part.keys.empty()) {
    auto before = std::find_if(std::make_reverse_iterator(slot), held.parts.rend(), same);
    auto after = std::find_if(slot + 1, held.parts.end(), same);
    if ((before != held.parts.rend() && (*before)->keys.back() >= part.keys.front()) ||
        (after != held.parts.end() && (*after)->keys.front() <= part.keys.back()))
      throw CommError(
          "worker {} pushed keys {} to {} in part {} of minibatch {}: keys must ascend; nothing "
          "was applied",
          worker, part.keys.front(), part.keys.back(), head.part, head.sequence);
  }
  *slot = std::move(part);
  ++held.arrived;
  held.measure |= (head.flags & kMeasure) != 0;
  held.bytes += bytes;
  own += bytes;
}

const HeldGradient* HeldGradients::find(const Name& name) const {
  auto found = held_.find(name);
  return found != held_.end() && found->second.complete() ? &found->second : nullptr;
}

void HeldGradients::erase(const Name& name) {
  auto found = held_.find(name);
  if (found == held_.end()) return;
  bytes_[static_cast<size_t>(std::get<0>(name))] -= found->second.bytes;
  held_.erase(found);
}

void HeldGradients::erase_incomplete(int worker) {
  for (auto one = held_.begin(); one != held_.end();) {
    if (std::get<0>(one->first) != worker || one->second.complete()) {
      ++one;
      continue;
    }
    bytes_[static_cast<size_t>(worker)] -= one->second.bytes;
    one = held_.erase(one);
  }
}

void HeldGradients::clear() {
  held_.clear();
  std::fill(bytes_.begin(), bytes_.end(), size_t{0});
}

size_t HeldGradients::bytes() const {
  size_t all = 0;
  for (size_t own : bytes_) all += own;
  return all;
}

void SparseSum::add(std::span<const Key> keys, std::span<const std::byte> values, double scale) {
  const auto width = static_cast<size_t>(width_);
  if (scale == 1 && !keys.empty() && (keys_.empty() || keys_.back() < keys.front())) {
    keys_.insert(keys_.end(), keys.begin(), keys.end());
    values_.insert(values_.end(), values.begin(), values.end());
    return;
  }
  if (type_ == DataType::kFloat32)
    merge<float>(keys_, values_, keys, values, scale, width);
  else
    merge<double>(keys_, values_, keys, values, scale, width);
}

double SparseSum::square(double weight) const {
  return type_ == DataType::kFloat32 ? square_of<float>(values_, weight) : square_of<double>(values_, weight);
}

}  // namespace yoke::ps::sparse
