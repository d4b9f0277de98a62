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

uint32_t KeyTable::look_up(Key key) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(key);; slot = (slot + 1) & mask) {
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

// The row behind the last one comes first: lists are sent again and again.
void KeyTable::find(std::span<const Key> keys, uint32_t* rows) const {
  size_t next = next_;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key key = keys[i];
    if (next < keys_.size() && keys_[next] == key) {
      rows[i] = static_cast<uint32_t>(next++);
      continue;
    }
    if (i + kAhead < keys.size()) __builtin_prefetch(&slots_[slot_of(keys[i + kAhead])]);
    rows[i] = look_up(key);
    if (rows[i] != kAbsent) next = size_t{rows[i]} + 1;
  }
  next_ = next;
}

std::optional<uint32_t> KeyTable::find_run(std::span<const Key> keys) const {
  for (size_t first : {next_, size_t{0}}) {
    if (first + keys.size() > keys_.size() || keys_[first] != keys[0]) continue;
    if (std::memcmp(&keys_[first], keys.data(), keys.size_bytes()) != 0) continue;
    next_ = first + keys.size();
    return static_cast<uint32_t>(first);
  }
  return std::nullopt;
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
