#include "yoke/ps/sparse/rounds.h"

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {
namespace {

KeyRange overlap(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Positions of the keys that lie in the range.
std::pair<size_t, size_t> positions(std::span<const Key> keys, KeyRange range) {
  auto first = std::lower_bound(keys.begin(), keys.end(), range.begin);
  auto last = std::lower_bound(first, keys.end(), range.end);
  return {static_cast<size_t>(first - keys.begin()), static_cast<size_t>(last - keys.begin())};
}

}  // namespace

Rounds::Rounds(Key keys, int workers, DataType type, int64_t width)
    : type_(type),
      width_(width),
      row_bytes_(static_cast<size_t>(width) * size_of(type)),
      taken_(keys),
      workers_(static_cast<size_t>(workers), Worker{RangeClock(keys), false, {}, 0}) {}

size_t Rounds::bytes_of(const Part& part) {
  return sizeof(Part) + part.keys.size() * sizeof(Key) + part.values.size();
}

bool Rounds::add(int number, KeyRange range, int64_t time, std::span<const Key> keys,
                 std::span<const std::byte> values) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  if (worker.bytes + keys.size_bytes() + values.size() > kMostBytes)
    throw CommError("worker {} has {} bytes waiting for the other workers' parts of earlier rounds", number,
                    worker.bytes);
  bool is_new = false;
  for (const RangeClock::Timed& known : worker.clock.within(range)) {
    if (known.time >= time) continue;
    is_new = true;
    hold(worker, known.range, time, keys, values);
    worker.clock.set(known.range, time);
    looked_for_[time].push_back(known.range);
  }
  return is_new;
}

void Rounds::hold(Worker& worker, KeyRange range, int64_t time, std::span<const Key> keys,
                  std::span<const std::byte> values) {
  const auto [first, last] = positions(keys, range);
  Part part{range, time, {}, {}};
  part.keys.assign(keys.begin() + static_cast<ptrdiff_t>(first), keys.begin() + static_cast<ptrdiff_t>(last));
  const auto own = values.subspan(first * row_bytes_, (last - first) * row_bytes_);
  part.values.assign(own.begin(), own.end());
  worker.bytes += bytes_of(part);
  worker.parts.push_back(std::move(part));
}

bool Rounds::is_given(const Worker& worker, KeyRange range, int64_t time) const {
  return worker.lost || worker.clock.oldest(range) >= time;
}

int Rounds::owed_by(KeyRange range, int64_t time) const {
  for (size_t i = 0; i < workers_.size(); ++i)
    if (!is_given(workers_[i], range, time)) return static_cast<int>(i);
  return -1;
}

// Those parts of the range that every worker has given and that were not taken.
std::vector<KeyRange> Rounds::complete_parts(KeyRange range, int64_t time) const {
  std::vector<KeyRange> left;
  for (const RangeClock::Timed& one : taken_.within(range))
    if (one.time < time) left.push_back(one.range);
  for (const Worker& worker : workers_) {
    if (worker.lost) continue;
    std::vector<KeyRange> given;
    for (KeyRange part : left)
      for (const RangeClock::Timed& one : worker.clock.within(part))
        if (one.time >= time) given.push_back(one.range);
    left = std::move(given);
  }
  return left;
}

Rounds::Complete Rounds::sum_of(KeyRange range, int64_t time) const {
  Complete complete{range, time, SparseSum(type_, width_)};
  for (const Worker& worker : workers_) {
    for (const Part& part : worker.parts) {
      if (part.time != time || overlap(part.range, range).empty()) continue;
      const auto [first, last] = positions(part.keys, range);
      complete.sum.add(std::span(part.keys).subspan(first, last - first),
                       std::span(part.values).subspan(first * row_bytes_, (last - first) * row_bytes_), 1);
    }
  }
  return complete;
}

// Parts of which all keys were taken.
void Rounds::release(KeyRange range, int64_t time) {
  for (Worker& worker : workers_) {
    for (auto part = worker.parts.begin(); part != worker.parts.end();) {
      if (part->time > time || overlap(part->range, range).empty() ||
          taken_.oldest(part->range) < part->time) {
        ++part;
        continue;
      }
      worker.bytes -= bytes_of(*part);
      part = worker.parts.erase(part);
    }
  }
}

std::vector<Rounds::Complete> Rounds::take() {
  std::vector<Complete> taken;
  for (const auto& [time, ranges] : std::exchange(looked_for_, {})) {
    for (KeyRange range : ranges) {
      for (KeyRange part : complete_parts(range, time)) {
        taken.push_back(sum_of(part, time));
        taken_.set(part, time);
        release(part, time);
      }
    }
  }
  return taken;
}

void Rounds::was_taken(KeyRange range, int64_t time) {
  taken_.set(range, time);
  for (Worker& worker : workers_) worker.clock.set(range, time);
}

void Rounds::forget_given() {
  for (Worker& worker : workers_) worker = {taken_, worker.lost, {}, 0};
  looked_for_.clear();
}

void Rounds::lose(int number) {
  workers_[static_cast<size_t>(number)].lost = true;
  for (const Worker& worker : workers_)
    for (const Part& part : worker.parts) looked_for_[part.time].push_back(part.range);
}

void Rounds::bring_back(int number) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  worker = {taken_, false, {}, 0};
}

size_t Rounds::bytes() const {
  size_t all = 0;
  for (const Worker& worker : workers_) all += worker.bytes;
  return all;
}

size_t Rounds::clock_ranges() const {
  size_t all = taken_.size();
  for (const Worker& worker : workers_) all += worker.clock.size();
  return all;
}

}  // namespace yoke::ps::sparse
