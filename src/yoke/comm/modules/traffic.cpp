#include "yoke/comm/modules/traffic.h"

namespace yoke::comm {
namespace {

using plan::Collective;

struct Ring {
  int rank;
  int size;
  const Operation& operation;

  // Elements of part p of `count`, counted around the ring.
  int64_t part(int64_t count, int p) const {
    int at = ((p % size) + size) % size;
    if (!operation.parts.empty()) return operation.parts[static_cast<size_t>(at)];
    return count * (at + 1) / size - count * at / size;
  }
};

Counters all_reduce(const Ring& ring, int64_t count) {
  Counters c;
  c.bytes_sent = 2 * count - ring.part(count, ring.rank + 1) - ring.part(count, ring.rank + 2);
  c.bytes_received = 2 * count - ring.part(count, ring.rank) - ring.part(count, ring.rank + 1);
  c.messages_sent = 2 * (ring.size - 1);
  return c;
}

Counters all_gather(const Ring& ring, int64_t count) {
  Counters c;
  c.bytes_sent = count - ring.part(count, ring.rank + 1);
  c.bytes_received = count - ring.part(count, ring.rank);
  c.messages_sent = ring.size - 1;
  return c;
}

// Every rank sends `part` to every other rank.
Counters exchange(const Ring& ring, int64_t part) {
  Counters c;
  c.messages_sent = ring.size - 1;
  c.bytes_sent = c.bytes_received = part * (ring.size - 1);
  return c;
}

// Along the ring of ranks, away from the root (`outwards`) or towards it.
Counters chain(const Ring& ring, int64_t count, bool outwards) {
  int place = (ring.rank - ring.operation.root + ring.size) % ring.size;
  bool first = place == 0, last = place == ring.size - 1;
  Counters c;
  c.messages_sent = (outwards ? last : first) ? 0 : 1;
  c.bytes_sent = c.messages_sent * count;
  c.bytes_received = (outwards ? first : last) ? 0 : count;
  return c;
}

// One part between the root and each other rank.
Counters star(const Ring& ring, int64_t part, bool outwards) {
  bool is_root = ring.rank == ring.operation.root;
  int64_t others = ring.size - 1;
  Counters c;
  c.messages_sent = is_root == outwards ? (is_root ? others : 1) : 0;
  c.bytes_sent = c.messages_sent * part;
  c.bytes_received = is_root == outwards ? 0 : (is_root ? others : 1) * part;
  return c;
}

Counters elements(const Ring& ring) {
  const Operation& op = ring.operation;
  switch (op.op) {
    case Collective::kAllReduce:
      return all_reduce(ring, op.output.count);
    case Collective::kReduce:
      return chain(ring, op.output.count, false);
    case Collective::kBroadcast:
      return chain(ring, op.output.count, true);
    case Collective::kReduceScatter:
      return exchange(ring, op.output.count);
    case Collective::kAllGather:
      return all_gather(ring, op.output.count);
    case Collective::kAllToAll:
      return exchange(ring, op.output.count / ring.size);
    case Collective::kGather:
      return star(ring, op.input.count, false);
    case Collective::kScatter:
      return star(ring, op.output.count, true);
    case Collective::kBarrier:
      break;
  }
  return {};
}

}  // namespace

Counters payload_of(const Operation& operation, int rank, int size) {
  Counters c;
  if (size > 1) c = elements({rank, size, operation});
  auto bytes = static_cast<int64_t>(size_of(operation.output.type));
  c.bytes_sent *= bytes;
  c.bytes_received *= bytes;
  c.operations = 1;
  return c;
}

Counters& operator+=(Counters& sum, const Counters& more) {
  sum.operations += more.operations;
  sum.bytes_sent += more.bytes_sent;
  sum.bytes_received += more.bytes_received;
  sum.messages_sent += more.messages_sent;
  return sum;
}

}  // namespace yoke::comm
