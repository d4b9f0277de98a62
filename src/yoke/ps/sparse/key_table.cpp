#include "yoke/ps/sparse/key_table.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {
namespace {

constexpr int kFirstBits = 6;
constexpr size_t kAhead = 12;  // keys whose slots are fetched from memory in advance

}  // namespace

KeyTable::KeyTable(DataType type, int64_t width, int arrays)
    : type_(type),
      width_(width),
      row_bytes_(static_cast<size_t>(width) * size_of(type)),
      arrays_(static_cast<size_t>(arrays)),
      slots_(size_t{1} << kFirstBits, kAbsent),
      shift_(64 - kFirstBits) {}

size_t KeyTable::bytes_held() const {
  size_t bytes = keys_.capacity() * sizeof(Key) + slots_.capacity() * sizeof(uint32_t) +
                 order_.capacity() * sizeof(uint32_t);
  for (const auto& array : arrays_) bytes += array.capacity();
  return bytes;
}

uint32_t KeyTable::look_up(Key key, size_t slot) const {
  const size_t mask = slots_.size() - 1;
  for (slot &= mask;; slot = (slot + 1) & mask) {
    const uint32_t row = slots_[slot];
    if (row == kAbsent || keys_[row] == key) return row;
  }
}

void KeyTable::grow() {
  --shift_;
  slots_.assign(slots_.size() * 2, kAbsent);
  const size_t mask = slots_.size() - 1;
  for (uint32_t row = 0; row < keys_.size(); ++row) {
    size_t slot = slot_of(keys_[row]);
    while (slots_[slot] != kAbsent) slot = (slot + 1) & mask;
    slots_[slot] = row;
  }
}

uint32_t KeyTable::add(Key key) {
  if (keys_.size() + 1 >= kAbsent)
    throw CommError("a table of a parameter server holds at most {} keys. Use more servers", kAbsent - 1);
  if ((keys_.size() + 1) * 2 > slots_.size()) grow();
  const auto row = static_cast<uint32_t>(keys_.size());
  for (auto& array : arrays_) array.resize(array.size() + row_bytes_);
  keys_.push_back(key);
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(key);
  while (slots_[slot] != kAbsent) slot = (slot + 1) & mask;
  slots_[slot] = row;
  return row;
}

// In two turns, without a branch in the first, so that the slots of many keys come from memory at the same
// time. Most keys are where the second turn looks first.
void KeyTable::find(std::span<const Key> keys, uint32_t* rows) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) __builtin_prefetch(&slots_[slot_of(keys[i + kAhead])]);
    rows[i] = slots_[slot_of(keys[i])];
  }
  for (size_t i = 0; i < keys.size(); ++i)
    if (rows[i] != kAbsent && keys_[rows[i]] != keys[i]) rows[i] = look_up(keys[i], slot_of(keys[i]) + 1);
}

std::optional<uint32_t> KeyTable::find_run(std::span<const Key> keys) const {
  const size_t first = look_up(keys[0], slot_of(keys[0]));
  if (first + keys.size() > keys_.size()) return std::nullopt;
  if (std::memcmp(&keys_[first], keys.data(), keys.size_bytes()) != 0) return std::nullopt;
  return static_cast<uint32_t>(first);
}

void KeyTable::find_or_add(std::span<const Key> keys, uint32_t* rows) {
  find(keys, rows);
  for (size_t i = 0; i < keys.size(); ++i)
    if (rows[i] == kAbsent) rows[i] = add(keys[i]);
}

std::span<const uint32_t> KeyTable::in_order() {
  const size_t sorted = order_.size();
  if (sorted == keys_.size()) return order_;
  order_.resize(keys_.size());
  auto first_new = order_.begin() + static_cast<ptrdiff_t>(sorted);
  std::iota(first_new, order_.end(), static_cast<uint32_t>(sorted));
  auto by_key = [this](uint32_t a, uint32_t b) { return keys_[a] < keys_[b]; };
  std::sort(first_new, order_.end(), by_key);
  std::inplace_merge(order_.begin(), first_new, order_.end(), by_key);
  return order_;
}

}  // namespace yoke::ps::sparse
