#include "yoke/ps/sparse/wire.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sparse/range_clock.h"

namespace yoke::ps::sparse {
namespace {

constexpr int32_t kKeyFlags = kCachedKeys | kKeepKeys | kCompressed;

[[noreturn]] void refuse_version(int from, int64_t version) {
  throw CommError("worker {} names version {} of a table: 0 to {} are accepted", from, version, kMostVersion);
}

void check_range(int from, KeyRange range, int64_t time, const TableShape& shape) {
  if (range.empty() || range.begin < shape.begin || range.end > shape.end)
    throw CommError("worker {} names keys {} to {}, but this server holds {} to {}; nothing was applied",
                    from, range.begin, range.end, shape.begin, shape.end);
  if (time < 1 || time > kMostVersion)
    throw CommError("worker {} names round {} of a table: 1 to {} are accepted; nothing was applied", from,
                    time, kMostVersion);
}

}  // namespace

void check_open(int from, const OpenTableHead& head) {
  if (head.table < 0 || head.table >= kMostTables)
    throw CommError("worker {} opens table {}: 0 to {} are accepted", from, head.table, kMostTables - 1);
  if (head.width < 1 || head.width > kMostWidth || head.pushed < 0 || head.pushed > kMostWidth ||
      head.keys < 1 || head.keys > kMostKeys ||
      (head.type != DataType::kFloat32 && head.type != DataType::kFloat64))
    throw CommError("worker {} opens table {} of {} keys with {} values: out of range", from, head.table,
                    head.keys, head.width);
}

void check_keys(int from, std::span<const Key> keys, const TableShape& shape) {
  if (keys.empty()) return;
  bool ascending = true;
  for (size_t i = 1; i < keys.size(); ++i) ascending &= keys[i - 1] < keys[i];
  if (!ascending) {
    size_t at = 1;
    while (keys[at - 1] < keys[at]) ++at;
    throw CommError("worker {} sent key {} after key {}: keys must ascend; nothing was applied", from,
                    keys[at], keys[at - 1]);
  }
  if (keys.front() < shape.begin || keys.back() >= shape.end)
    throw CommError("worker {} sent keys {} to {}, but this server holds {} to {}; nothing was applied", from,
                    keys.front(), keys.back(), shape.begin, shape.end);
}

KeyedBytes split_payload(int from, int64_t keys, std::span<const std::byte> payload, size_t each,
                         int32_t flags, const TableShape& shape) {
  const size_t key_bytes = (flags & kCachedKeys) != 0 ? 0 : sizeof(Key);
  const bool compressed = (flags & kCompressed) != 0 && each > 0;
  const auto most = keys_per_message(compressed ? each : 0);
  const auto expected =
      static_cast<size_t>(std::max<int64_t>(0, keys)) * (key_bytes + (compressed ? 0 : each));
  if (keys < 0 || keys > most || (compressed ? payload.size() < expected : payload.size() != expected))
    throw CommError("worker {} sent {} bytes for {} keys with {} bytes each; nothing was applied", from,
                    payload.size(), keys, key_bytes + each);
  KeyedBytes split;
  const size_t list = static_cast<size_t>(keys) * key_bytes;
  split.keys = {reinterpret_cast<const Key*>(payload.data()), list / sizeof(Key)};
  split.values = payload.subspan(list);
  check_keys(from, split.keys, shape);
  return split;
}

size_t pushed_bytes(int32_t flags, const TableShape& shape) {
  const auto pushed = static_cast<size_t>(shape.pushed);
  if ((flags & kInt8) != 0) return pushed;
  return (flags & kInt16) != 0 ? 2 * pushed : shape.pushed_bytes();
}

void check_push(int from, const PushTableHead& head) {
  constexpr int32_t known = kKeyFlags | kInUpdate | kMeasure | kFixedPoint;
  const bool fixed = (head.flags & kFixedPoint) != 0;
  if ((head.flags & ~known) != 0 || (head.flags & kFixedPoint) == kFixedPoint)
    throw CommError("worker {} pushed to table {} with flags {:#x}; nothing was applied", from, head.table,
                    head.flags);
  if (!std::isfinite(head.scale) || !std::isfinite(head.unit) || (fixed && head.unit < 0))
    throw CommError("worker {} pushed to table {} with a scale of {} and a unit of {}; nothing was applied",
                    from, head.table, head.scale, head.unit);
  if (head.sequence < 0 || head.parts < 1 || head.parts > kMostParts || head.part < 0 ||
      head.part >= head.parts)
    throw CommError("worker {} pushed number {}, part {} of {}, to table {}; nothing was applied", from,
                    head.sequence, head.part, head.parts, head.table);
}

void check_pull(int from, const PullTableHead& head, const TableShape& shape) {
  if ((head.flags & ~kKeyFlags) != 0)
    throw CommError("worker {} pulls from table {} with flags {:#x}", from, head.table, head.flags);
  if (head.version < 0 || head.version > kMostVersion) refuse_version(from, head.version);
  if (head.keys < 0 || head.keys > keys_per_message(shape.value_bytes()))
    throw CommError("worker {} pulls {} keys from table {}: at most {} are accepted", from, head.keys,
                    head.table, keys_per_message(shape.value_bytes()));
}

void check_round(int from, const PushRoundHead& head, const TableShape& shape) {
  constexpr int32_t known = kKeyFlags | kFixedPoint;
  if ((head.flags & ~known) != 0 || (head.flags & kFixedPoint) == kFixedPoint)
    throw CommError("worker {} pushed a round to table {} with flags {:#x}; nothing was applied", from,
                    head.table, head.flags);
  if (!std::isfinite(head.unit) || ((head.flags & kFixedPoint) != 0 && head.unit < 0))
    throw CommError("worker {} pushed a round to table {} with a unit of {}; nothing was applied", from,
                    head.table, head.unit);
  check_range(from, {head.begin, head.end}, head.time, shape);
}

void check_round(int from, const PullRoundHead& head, const TableShape& shape) {
  check_pull(from, {head.table, head.flags, head.keys, 0, head.hash}, shape);
  check_range(from, {head.begin, head.end}, head.time, shape);
}

void check_assign(int from, const AssignTableHead& head, const TableShape& shape) {
  if (head.version < 0 || head.version > kMostVersion) refuse_version(from, head.version);
  if (head.array < 0 || head.array > shape.state_arrays)
    throw CommError("worker {} sets array {} of table {}, which has {}", from, head.array, head.table,
                    shape.state_arrays + 1);
}

void check_fetch(int from, const FetchTableHead& head, const TableShape& shape) {
  if ((head.flags & ~kFromSnapshot) != 0)
    throw CommError("worker {} fetches from table {} with flags {:#x}", from, head.table, head.flags);
  if (head.version < 0 || head.version > kMostVersion) refuse_version(from, head.version);
  if (head.array < 0 || head.array > shape.state_arrays || head.most < 1 ||
      head.most > keys_per_message(shape.value_bytes()) || head.begin > head.end)
    throw CommError("worker {} fetches {} keys of array {} of table {} in {} to {}: out of range", from,
                    head.most, head.array, head.table, head.begin, head.end);
}

void check_finite(int from, std::span<const std::byte> values, DataType type) {
  const bool finite = type == DataType::kFloat32
                          ? kernels::all_finite(reinterpret_cast<const float*>(values.data()),
                                                static_cast<int64_t>(values.size() / sizeof(float)))
                          : kernels::all_finite(reinterpret_cast<const double*>(values.data()),
                                                static_cast<int64_t>(values.size() / sizeof(double)));
  if (!finite) throw CommError("worker {} pushed a non-finite value; nothing was applied", from);
}

}  // namespace yoke::ps::sparse
