#include "yoke/data/formats/text/word_cache.h"

#include <cstring>

namespace yoke::data {
namespace {

// Eight bytes at a time: words have about five.
uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size() * 0x9e3779b97f4a7c15u;
  auto mix = [&](uint64_t part) {
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  for (; word.size() >= 8; word.remove_prefix(8)) {
    uint64_t part = 0;
    std::memcpy(&part, word.data(), 8);
    mix(part);
  }
  uint64_t part = 0;
  std::memcpy(&part, word.data(), word.size());
  mix(part);
  return hash;
}

}  // namespace

// Where the word is, or the free slot for it.
size_t WordCache::place(std::string_view word, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.count == 0) return at;
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.length) == word) return at;
  }
}

std::span<const TokenId> WordCache::find(std::string_view word) const {
  if (word.size() > kLongest) return {};
  const Slot& slot = slots_[place(word, hash_of(word))];
  return {tokens_.data() + slot.tokens, slot.count};
}

void WordCache::make_room() {
  if (slots_.size() == kMostSlots) {
    *this = WordCache();
    return;
  }
  std::vector<Slot> before(2 * slots_.size());
  before.swap(slots_);
  for (const Slot& slot : before)
    if (slot.count > 0)
      slots_[place(std::string_view(words_).substr(slot.word, slot.length), slot.hash)] = slot;
}

void WordCache::put(std::string_view word, std::span<const TokenId> tokens) {
  if (word.size() > kLongest) return;
  if (2 * count_ >= slots_.size()) make_room();
  const uint64_t hash = hash_of(word);
  slots_[place(word, hash)] = {hash, static_cast<uint32_t>(words_.size()),
                               static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(word.size()),
                               static_cast<uint16_t>(tokens.size())};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ++count_;
}

}  // namespace yoke::data
