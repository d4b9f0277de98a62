// Collectives through the slots of the control block: small ones, and buffers that only their owner can
// access.
#include <algorithm>
#include <cstring>

#include "yoke/comm/shared/collectives.h"
#include "yoke/comm/shared/combine.h"

namespace yoke::comm::shared {
namespace {

bool takes_part(int who, int rank) {
  return who == kEverybody || who == rank;
}

}  // namespace

// Elements per lane and round.
int64_t Collectives::window(const Task& task) const {
  size_t room = kSlotBytes / static_cast<size_t>(list_.lanes) / 64 * 64 / task.element;
  size_t wanted = (static_cast<size_t>(list_.longest) * task.element + 63) / 64 * 64 / task.element;
  return static_cast<int64_t>(std::min(room, wanted));
}

void Collectives::through_slots(const Task& task) {
  int64_t elements = window(task);
  // With two ranks each combines everything itself; with more, that would multiply the work by N.
  if (task.operation.op == plan::Collective::kAllReduce && size_ > 2)
    return all_reduce_in_two_hops(task, elements);
  for (int64_t round = 0; round * elements < list_.longest; ++round) {
    publish(task, elements, round, phases_.own_slot());
    phases_.announce();
    phases_.wait(task.deadline);
    consume(task, elements, round);
  }
}

void Collectives::publish(const Task& task, int64_t window, int64_t round, std::byte* slot) const {
  const int64_t begin = round * window;
  for (const Work& work : list_.works) {
    if (!takes_part(work.source, rank_) || work.out == rank_ || begin >= work.count) continue;
    size_t lane = static_cast<size_t>(work.lane * window) * task.element;
    size_t from = static_cast<size_t>(work.source_offset + begin) * task.element;
    std::memcpy(slot + lane, task.input + from,
                static_cast<size_t>(std::min(window, work.count - begin)) * task.element);
  }
}

void Collectives::consume(const Task& task, int64_t window, int64_t round) const {
  const int64_t begin = round * window;
  std::array<const void*, kMaxRanks> sources;
  for (const Work& work : list_.works) {
    if (!takes_part(work.out, rank_) || begin >= work.count) continue;
    size_t lane = static_cast<size_t>(work.lane * window) * task.element;
    size_t count = 0;
    for (int r = 0; r < size_; ++r) {
      if (!takes_part(work.source, r)) continue;
      size_t own = static_cast<size_t>(work.source_offset + begin) * task.element;
      sources[count++] = r == rank_ ? task.input + own : phases_.slot(r) + lane;
    }
    void* out = task.output + static_cast<size_t>(work.out_offset + begin) * task.element;
    combine({&out, 1}, {sources.data(), count}, static_cast<size_t>(std::min(window, work.count - begin)),
            task.type, task.operation.reduce);
  }
}

// Two phases per round: rank r combines part r of all slots into its own slot, then every rank collects the
// parts.
void Collectives::all_reduce_in_two_hops(const Task& task, int64_t window) {
  const int64_t total = list_.longest;
  const int64_t rounds = (total + window - 1) / window;
  const auto start = static_cast<int64_t>(phases_.current());
  std::array<const void*, kMaxRanks> sources;
  for (int64_t round = 0; round < rounds; ++round) {
    // Slots alternate such that the last round uses the one that the next operation will not write first:
    // other ranks may still read it when this rank starts that operation.
    const auto parity = static_cast<uint32_t>((start + rounds - 1 - round) & 1);
    const int64_t begin = round * window, count = std::min(window, total - begin);
    auto part = [&](int64_t r) { return static_cast<size_t>(count * r / size_) * task.element; };
    publish(task, window, round, control_.slot(rank_, parity));
    meet(task.deadline);
    const size_t mine = part(rank_);
    for (int r = 0; r < size_; ++r) sources[static_cast<size_t>(r)] = control_.slot(r, parity) + mine;
    void* out = control_.slot(rank_, parity) + mine;
    combine({&out, 1}, {sources.data(), static_cast<size_t>(size_)}, (part(rank_ + 1) - mine) / task.element,
            task.type, task.operation.reduce);
    meet(task.deadline);
    std::byte* to = task.output + static_cast<size_t>(begin) * task.element;
    for (int r = 0; r < size_; ++r)
      std::memcpy(to + part(r), control_.slot(r, parity) + part(r), part(r + 1) - part(r));
  }
}

}  // namespace yoke::comm::shared
