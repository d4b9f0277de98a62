#include "yoke/data/formats/text/pair_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

namespace yoke::data {
namespace {

constexpr size_t kShort = 48;  // up to here searching the whole word is faster than a queue

// Keeps the ranks of all pairs: a merge changes two of them.
void merge_short(const PairTable& pairs, std::vector<TokenId>& ids) {
  PairTable::Found found[kShort];
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) found[i] = pairs.find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (found[i].rank < found[best].rank) best = i;
    if (found[best].rank == PairTable::kNone) break;
    ids[best] = found[best].merged;
    std::copy(ids.begin() + static_cast<ptrdiff_t>(best) + 2, ids.begin() + static_cast<ptrdiff_t>(count),
              ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(found + best + 1, found + count - 1, found + best);
    --count;
    if (best + 1 < count) found[best] = pairs.find(ids[best], ids[best + 1]);
    if (best > 0) found[best - 1] = pairs.find(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

struct Candidate {
  uint32_t rank;
  uint32_t at;
  TokenId left, right;  // when it was found: it is stale if they are others now
  TokenId merged;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

// A doubly linked list of tokens, and a queue of pairs.
class LongMerge {
 public:
  LongMerge(const PairTable& pairs, std::vector<TokenId>& ids)
      : pairs_(pairs), ids_(ids), next_(ids.size()), before_(ids.size()) {
    for (size_t i = 0; i < ids.size(); ++i) {
      next_[i] = static_cast<uint32_t>(i) + 1;
      before_[i] = static_cast<uint32_t>(i) - 1;  // of the first: kEnd
    }
    next_.back() = kEnd;
  }

  void run() {
    for (uint32_t i = 0; i + 1 < ids_.size(); ++i) offer(i);
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (is_current(best)) merge(best);
    }
    std::erase(ids_, kGone);
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX;
  static constexpr TokenId kGone = -1;

  void offer(uint32_t at) {
    if (at == kEnd || next_[at] == kEnd) return;
    const TokenId left = ids_[at], right = ids_[next_[at]];
    const PairTable::Found found = pairs_.find(left, right);
    if (found.rank != PairTable::kNone) queue_.push({found.rank, at, left, right, found.merged});
  }
  bool is_current(const Candidate& one) const {
    return ids_[one.at] == one.left && next_[one.at] != kEnd && ids_[next_[one.at]] == one.right;
  }
  void merge(const Candidate& one) {
    const uint32_t right = next_[one.at], after = next_[right];
    ids_[one.at] = one.merged;
    ids_[right] = kGone;
    next_[one.at] = after;
    if (after != kEnd) before_[after] = one.at;
    offer(one.at);
    offer(before_[one.at]);
  }

  const PairTable& pairs_;
  std::vector<TokenId>& ids_;
  std::vector<uint32_t> next_, before_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace

PairTable::PairTable(const std::vector<Merge>& merges) {
  slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  mask_ = slots_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    size_t at = slot_of(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, {static_cast<uint32_t>(rank), merges[rank].merged}};
  }
}

void merge_pairs(const PairTable& pairs, std::vector<TokenId>& ids) {
  if (ids.size() <= kShort)
    merge_short(pairs, ids);
  else
    LongMerge(pairs, ids).run();
}

}  // namespace yoke::data
