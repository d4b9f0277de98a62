// What the servers of a chain tell each other (ps/chain.h): each change of a home, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {

enum class Change : int64_t {
  kAssign,   // AssignHead, data: one array of a range
  kApply,    // ApplyChange, marks, data if it has: a range has applied an update
  kSum,      // SumChange, marks, data: a range has all gradients of an update that waits to be clipped
  kHold,     // HoldChange, data: a gradient that came before its turn
  kAdd,      // AddChange, data unless it was held: a gradient of an update that is not complete
  kNow,      // NowChange, data: a push outside of updates
  kKeys,     // KeysChange, data: a push of keys outside of updates
  kDecide,   // SchedulerInput, text: something the scheduler was told
  kClipped,  // ClipHead: the factor of an update
  // Sparse tables:
  kTableOpen,    // sparse::OpenTableHead
  kTableAssign,  // sparse::AssignTableHead, keys, values
  kTableNow,     // TableChange, keys, values: a push outside of updates
  kTableHold,    // TableChange, sparse::PushTableHead, keys, values: a part of a gradient
  kTablePart,    // TableChange, keys, values: a part of the sum that kTableUpdate applies
  kTableUpdate,  // TableUpdateChange, contributors: the tables have applied an update
  kTableRound,   // TableRoundChange: a table has applied a round, the sum of which kTablePart brought
};

struct ApplyChange {
  int64_t range = 0;
  int64_t number = 0;   // of the update
  int64_t version = 0;  // after it
  double lr = 0;
  double weight = 0;
  double square = -1;  // PullReply
  int64_t shortfall = 0;
  int64_t gradient = 0;  // Gradient
  // Of what the update consists: nothing; the data of this entry; what kSum or kAdd have brought.
  enum Gradient : int64_t { kNone, kHere, kThere };
};
struct SumChange {
  int64_t range = 0;
  int64_t number = 0;   // of the update
  int64_t counted = 0;  // gradients
  int64_t shortfall = 0;
  int64_t measure = 0;
};
struct HoldChange {
  int64_t worker = 0;
  int64_t life = 0;
  PushHead head;
};
struct AddChange {
  int64_t range = 0;
  int64_t worker = 0;
  int64_t life = 0;
  int64_t minibatch = 0;
  double scale = 1;
  int64_t held = 0;  // 1: kHold has brought it
};
struct NowChange {
  int64_t range = 0;
  int64_t begin = 0;
  int64_t worker = 0;
  int64_t sequence = 0;
  int64_t settled = 1;
  double scale = 1;
};
struct KeysChange {
  int64_t worker = 0;
  int64_t keys = 0;
  int64_t sequence = 0;
  int64_t settled = 1;
};

// Of rows of a table.
struct TableChange {
  int64_t table = 0;
  int64_t keys = 0;
  int64_t worker = 0;
  int64_t life = 0;
  int64_t sequence = 0;  // kTableNow, with `settled` and `scale`
  int64_t settled = 1;
  double scale = 1;
  int64_t first = 0;  // kTablePart: 1: parts before it are void
};
struct TableUpdateChange {
  int64_t number = 0;   // of the update
  int64_t version = 0;  // after it
  double lr = 0;
  double weight = 0;
  double square = -1;        // TableReply
  int64_t there = 0;         // 1: kTableHold has brought the gradients; else kTablePart their sum
  int64_t contributors = 0;  // gradients that it consumes
  int64_t keys = 0;          // of the sum, in all tables
};

struct TableRoundChange {
  int64_t table = 0;
  uint64_t begin = 0;  // of its keys
  uint64_t end = 0;
  int64_t time = 0;
  int64_t keys = 0;  // of the sum
};

// Something the scheduler was told, when. Its decisions are a function of these.
struct SchedulerInput {
  enum What : int64_t { kJoined, kUpdates, kHasFinished, kLeft, kDelaySet, kStopped, kScaled, kLetGo };
  int64_t what = kJoined;
  int64_t worker = 0;
  double time = 0;
  int64_t value = 0;  // kJoined: version; kUpdates, kDelaySet, kStopped: their argument; kLeft: 1: lost
  int64_t life = 0;   // kJoined
  FinishedHead finished{};
  ScaleHead scale{};  // kScaled
};

// Builds an entry.
class EntryWriter {
 public:
  explicit EntryWriter(Change change) { put(change); }
  template <class T>
  EntryWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  EntryWriter& put_list(std::span<const int64_t> list) {
    put(static_cast<int64_t>(list.size()));
    return put_bytes(std::as_bytes(list));
  }
  EntryWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads one. Throws CommError where it is too short.
class EntryReader {
 public:
  explicit EntryReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, get_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::vector<int64_t> get_list() { return get_many(get<int64_t>()); }
  std::vector<int64_t> get_many(int64_t count) {
    if (count < 0 || static_cast<size_t>(count) > bytes_.size() / sizeof(int64_t))
      throw CommError("an entry of a chain ends in the middle of a list of {}", count);
    std::vector<int64_t> list(static_cast<size_t>(count));
    std::span<const std::byte> from = get_bytes(list.size() * sizeof(int64_t));
    if (!list.empty()) std::memcpy(list.data(), from.data(), from.size());
    return list;
  }
  size_t left() const { return bytes_.size(); }
  // The rest, where values of any type may lie.
  std::vector<std::byte> aligned_rest() {
    const std::span<const std::byte> all = rest();
    return {all.begin(), all.end()};
  }
  std::span<const std::byte> rest() { return get_bytes(bytes_.size()); }

 private:
  std::span<const std::byte> get_bytes(size_t count) {
    if (count > bytes_.size())
      throw CommError("an entry of a chain has {} bytes where {} are expected", bytes_.size(), count);
    std::span<const std::byte> part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  std::span<const std::byte> bytes_;
};

}  // namespace yoke::ps
