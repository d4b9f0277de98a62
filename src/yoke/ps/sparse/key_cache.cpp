#include "yoke/ps/sparse/key_cache.h"

#include <algorithm>
#include <array>

namespace yoke::ps::sparse {
namespace {

uint64_t mixed(uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93;
  return value ^ value >> 32;
}

}  // namespace

// Four independent lanes, so that a multiplication does not wait for the one before.
uint64_t hash_of(std::span<const Key> keys) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  std::array<uint64_t, 4> lanes = {keys.size(), 1, 2, 3};
  size_t i = 0;
  for (; i + 4 <= keys.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) {
      uint64_t mix = (lanes[lane] ^ keys[i + lane]) * kStep;
      lanes[lane] = mix ^ mix >> 29;
    }
  }
  for (; i < keys.size(); ++i) lanes[0] = mixed((lanes[0] ^ keys[i]) * kStep);
  uint64_t hash = 0;
  for (uint64_t lane : lanes) hash = mixed((hash ^ lane) * kStep);
  return hash;
}

KeyList KeptLists::find(uint64_t hash, size_t keys) const {
  auto found = lists_.find(hash);
  return found != lists_.end() && found->second->keys.size() == keys ? found->second : nullptr;
}

KeyList KeptLists::keep(uint64_t hash, std::span<const Key> keys) {
  if (KeyList kept = find(hash, keys.size())) return kept;
  KeyList list = make_list(keys);
  if (!lists_.emplace(hash, list).second) return list;  // another list with this hash
  order_.push_back(hash);
  bytes_ += keys.size_bytes();
  while (order_.size() > kMostLists || bytes_ > kMostListBytes) {
    auto oldest = lists_.find(order_.front());
    bytes_ -= oldest->second->keys.size() * sizeof(Key);
    lists_.erase(oldest);
    order_.pop_front();
  }
  return list;
}

void SentLists::sent(uint64_t hash, size_t bytes) {
  if (!bytes_of_.emplace(hash, bytes).second) return;
  order_.push_back(hash);
  bytes_ += bytes;
  while (order_.size() > kMostLists || bytes_ > kMostListBytes) forget(order_.front());
}

void SentLists::forget(uint64_t hash) {
  auto found = bytes_of_.find(hash);
  if (found == bytes_of_.end()) return;
  bytes_ -= found->second;
  bytes_of_.erase(found);
  order_.erase(std::find(order_.begin(), order_.end(), hash));
}

}  // namespace yoke::ps::sparse
