// The messages about sparse tables; their kinds are in ps/messages.h.
//
// A message about keys names those of one server, in strictly ascending order. Its payload is the keys (8
// bytes each), then the values: keys * 8 + values * size bytes. If the server has the list already, the
// payload is the values alone, and the head has a hash of the list. `home` is the server that the keys
// belong to, which may not be the one that serves them now (ps/succession.h).
#pragma once

#include <cstdint>

#include "yoke/base/data_type.h"
#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

inline constexpr int kMostTables = 64;
inline constexpr int64_t kMostWidth = 1 << 16;
// Of a message: keys and values, with at least one key.
inline constexpr size_t kMessageBytes = size_t{16} << 20;
inline constexpr int64_t kMostParts = 1 << 16;

enum Flag : int32_t {
  kCachedKeys = 1,     // no keys in the payload: the list with this hash
  kKeepKeys = 2,       // the receiver should keep the list
  kInUpdate = 4,       // part of the gradient of a minibatch; else it is applied at once
  kMeasure = 8,        // report PullTableReply::square for the version this update makes
  kInt8 = 16,          // values are int8, times PushTableHead::unit
  kInt16 = 32,         // likewise
  kFromSnapshot = 64,  // of FetchTableHead: the snapshot at this version, not the newest values
  kCompressed = 128,   // of a push: values are a zstd frame; of a pull: those of the reply may be
};
inline constexpr int32_t kFixedPoint = kInt8 | kInt16;

struct OpenTableHead {
  int64_t table = 0;
  int64_t width = 1;
  Key keys = kMostKeys;  // the key space is [0, keys)
  DataType type = DataType::kFloat32;
  int64_t pushed = 0;  // values per key of a push, for rules that take another structure; 0: `width`
  int64_t home = 0;
};
struct OpenTableReply {
  int64_t state_arrays = 0;
};

struct AssignTableHead {  // payload: keys, values
  int64_t table = 0;
  int64_t array = 0;  // 0: values; then the state of the rule
  int64_t keys = 0;
  int64_t version = 0;  // number of updates so far
  int64_t home = 0;
};

struct PushTableHead {
  int32_t table = 0;
  int32_t flags = 0;
  int32_t keys = 0;
  int32_t home = 0;
  int64_t sequence = 0;  // minibatch; outside of updates: number of this push to this server, from 1
  int64_t settled = 1;   // outside of updates: lower numbers are never sent again
  double scale = 1;
  int32_t part = 0;   // of the minibatch's messages to this server
  int32_t parts = 1;  // how many there are, about all tables
  uint64_t hash = 0;
  double unit = 0;  // kInt8, kInt16
};

struct PullTableHead {
  int32_t table = 0;
  int32_t flags = 0;
  int64_t keys = 0;
  int64_t version = 0;  // minimum; the reply waits for it
  uint64_t hash = 0;
  int64_t home = 0;
};

// Reply to pushes and pulls.
struct TableReply {
  int64_t unknown_keys = 0;  // 1: the list with this hash is not here, send it again; nothing was applied
  int64_t version = 0;
  // Sum of squares of the tables' gradient on this server, before clipping, in the update that made this
  // version; -1: not measured.
  double square = -1;
  int64_t compressed = 0;  // 1: the payload is a zstd frame
};

// A round: every worker gives its gradient of the keys in [begin, end) at one time, and the rule of the table
// is applied to the sum. Keys that a message leaves out count as zeros.
struct PushRoundHead {
  int32_t table = 0;
  int32_t flags = 0;
  int32_t keys = 0;
  int32_t home = 0;
  Key begin = 0;
  Key end = 0;
  int64_t time = 0;  // from 1; those of a range ascend
  uint64_t hash = 0;
  double unit = 0;  // kInt8, kInt16
};
struct PullRoundHead {
  int32_t table = 0;
  int32_t flags = 0;
  int32_t keys = 0;
  int32_t home = 0;
  Key begin = 0;
  Key end = 0;
  int64_t time = 0;  // minimum, of all keys in [begin, end); the reply waits for it
  uint64_t hash = 0;
};

// Rows whose keys lie in [begin, end), in order, as many as fit into the reply (payload: keys, values).
struct FetchTableHead {
  int32_t table = 0;
  int32_t flags = 0;
  int64_t array = 0;
  Key begin = 0;
  Key end = kMostKeys;
  int64_t most = 0;     // keys
  int64_t version = 0;  // minimum, or of the snapshot; the reply waits for it
  int64_t home = 0;
};
struct FetchTableReply {
  int64_t keys = 0;
  int64_t more = 0;  // 1: there are more behind the last one
  int64_t version = 0;
};

// Keys that fit into a message with `each` bytes of values per key.
inline int64_t keys_per_message(size_t each) {
  const auto most = static_cast<int64_t>(kMessageBytes / (sizeof(Key) + each));
  return most > 0 ? most : 1;
}

}  // namespace yoke::ps::sparse
