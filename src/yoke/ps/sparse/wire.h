// Checks of what peers send about sparse tables. All throw CommError that names the sender; nothing was
// applied then.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/sparse/messages.h"

namespace yoke::ps::sparse {

// The shape of a table, and the keys of it that this server holds.
struct TableShape {
  int64_t width = 1;
  DataType type = DataType::kFloat32;
  Key begin = 0;
  Key end = kMostKeys;
  int state_arrays = 0;
  int64_t pushed = 1;  // values per key of a push
  size_t value_bytes() const { return static_cast<size_t>(width) * size_of(type); }
  size_t pushed_bytes() const { return static_cast<size_t>(pushed) * size_of(type); }
};

void check_open(int from, const OpenTableHead& head);

// Strictly ascending, and in [shape.begin, shape.end).
void check_keys(int from, std::span<const Key> keys, const TableShape& shape);

// Keys and values of a payload, without a copy; `keys` is empty if the list is named by its hash.
struct KeyedBytes {
  std::span<const Key> keys;
  std::span<const std::byte> values;
};
// `each`: bytes of values per key. With kCachedKeys the payload has no keys, with kCompressed the values may
// have any size.
KeyedBytes split_payload(int from, int64_t keys, std::span<const std::byte> payload, size_t each,
                         int32_t flags, const TableShape& shape);

// Bytes per key of the values of a push with these flags.
size_t pushed_bytes(int32_t flags, const TableShape& shape);
void check_push(int from, const PushTableHead& head);
void check_pull(int from, const PullTableHead& head, const TableShape& shape);
void check_round(int from, const PushRoundHead& head, const TableShape& shape);
void check_round(int from, const PullRoundHead& head, const TableShape& shape);
void check_assign(int from, const AssignTableHead& head, const TableShape& shape);
void check_fetch(int from, const FetchTableHead& head, const TableShape& shape);
void check_finite(int from, std::span<const std::byte> values, DataType type);

}  // namespace yoke::ps::sparse
