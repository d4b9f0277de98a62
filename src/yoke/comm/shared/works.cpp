#include "yoke/comm/shared/works.h"

#include <algorithm>

namespace yoke::comm::shared {
namespace {

using plan::Collective;

int64_t part_begin(int64_t count, int64_t part, int64_t size) {
  return count / size * part + count % size * part / size;
}

int64_t gathered(const Operation& operation, int rank) {
  return operation.parts.empty() ? operation.input.count : operation.parts[static_cast<size_t>(rank)];
}

void add(WorkList& list, Work work) {
  list.longest = std::max(list.longest, work.count);
  if (work.count > 0) list.works.push_back(work);
}

}  // namespace

void list_works(const Operation& operation, int size, WorkList& list) {
  list.works.clear();
  list.lanes = 1;
  list.longest = 0;
  const int root = operation.root;
  const int64_t in = operation.input.count, out = operation.output.count;
  switch (operation.op) {
    case Collective::kAllReduce:
      return add(list, {.count = out});
    case Collective::kReduce:
      return add(list, {.count = out, .out = root});
    case Collective::kBroadcast:
      return add(list, {.count = out, .source = root});
    case Collective::kReduceScatter:
      list.lanes = size;
      for (int r = 0; r < size; ++r) add(list, {.count = out, .source_offset = r * out, .out = r, .lane = r});
      return;
    case Collective::kScatter:
      list.lanes = size;
      for (int r = 0; r < size; ++r)
        add(list, {.count = out, .source = root, .source_offset = r * out, .out = r, .lane = r});
      return;
    case Collective::kGather:
      for (int r = 0; r < size; ++r) add(list, {.count = in, .source = r, .out = root, .out_offset = r * in});
      return;
    case Collective::kAllGather:
      for (int64_t r = 0, at = 0; r < size; at += gathered(operation, static_cast<int>(r)), ++r) {
        int from = static_cast<int>(r);
        add(list, {.count = gathered(operation, from), .source = from, .out_offset = at});
      }
      return;
    case Collective::kAllToAll: {
      list.lanes = size;
      int64_t part = in / size;
      for (int from = 0; from < size; ++from) {
        for (int to = 0; to < size; ++to) add(list, {part, from, to * part, to, from * part, to});
      }
      return;
    }
    case Collective::kBarrier:
      return;
  }
}

bool uses_input(const Operation& operation, int rank) {
  if (operation.op == Collective::kBarrier) return false;
  bool root_only = operation.op == Collective::kBroadcast || operation.op == Collective::kScatter;
  return !root_only || rank == operation.root;
}

bool uses_output(const Operation& operation, int rank) {
  if (operation.op == Collective::kBarrier) return false;
  bool root_only = operation.op == Collective::kReduce || operation.op == Collective::kGather;
  return !root_only || rank == operation.root;
}

Counters traffic(const Operation& operation, int rank, int size) {
  const int64_t others = size - 1;
  const int64_t in = operation.input.count, out = operation.output.count;
  const bool root = rank == operation.root;
  Counters moved;
  auto set = [&](int64_t sent, int64_t received, int64_t messages) {
    int64_t bytes = static_cast<int64_t>(size_of(operation.descriptor.type));
    moved.bytes_sent = sent * bytes;
    moved.bytes_received = received * bytes;
    moved.messages_sent = messages;
  };
  moved.operations = 1;
  if (others == 0) return moved;
  switch (operation.op) {
    case Collective::kAllReduce: {
      int64_t own = part_begin(out, rank + 1, size) - part_begin(out, rank, size);
      set(out - own + others * own, others * own + out - own, 2 * others);
      break;
    }
    case Collective::kReduce:
      root ? set(0, others * out, 0) : set(out, 0, 1);
      break;
    case Collective::kBroadcast:
      root ? set(others * out, 0, others) : set(0, out, 0);
      break;
    case Collective::kReduceScatter:
      set(others * out, others * out, others);
      break;
    case Collective::kScatter:
      root ? set(others * out, 0, others) : set(0, out, 0);
      break;
    case Collective::kGather:
      root ? set(0, others * in, 0) : set(in, 0, 1);
      break;
    case Collective::kAllGather:
      set(others * in, out - in, others);
      break;
    case Collective::kAllToAll:
      set(others * (in / size), others * (in / size), others);
      break;
    case Collective::kBarrier:
      set(0, 0, others);
      break;
  }
  return moved;
}

}  // namespace yoke::comm::shared
