// A collective as plain data: ranges that are copied or combined from some ranks to others. The same list is
// executed in place or through slots.
#pragma once

#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/operation.h"

namespace yoke::comm::shared {

inline constexpr int kEverybody = -1;

// Combines `count` elements of all inputs, or copies those of one rank, to the outputs of all ranks or of
// one. Offsets are in elements and the same on all ranks.
struct Work {
  int64_t count = 0;
  int source = kEverybody;
  int64_t source_offset = 0;
  int out = kEverybody;
  int64_t out_offset = 0;
  int lane = 0;  // distinguishes the ranges that one rank contributes
};

struct WorkList {
  std::vector<Work> works;
  int lanes = 1;        // per rank
  int64_t longest = 0;  // largest count
};

// Fills `list`, reusing its memory.
void list_works(const Operation& operation, int size, WorkList& list);

// Whether `rank` contributes an input or gets an output.
bool uses_input(const Operation& operation, int rank);
bool uses_output(const Operation& operation, int rank);

// Payload that `rank` sends and receives if every rank owns one part of the data (plan::part_of). Sent by
// all_reduce: the other parts of its input to their owners, and its own combined part to everybody: 2 (N-1)/N
// of the data if parts are equal; reduce and gather: its input to the root; reduce_scatter, all_to_all,
// scatter: everything but its own part; all_gather, broadcast: its data to N - 1 ranks. Messages: one per
// receiving rank, twice that for all_reduce.
Counters traffic(const Operation& operation, int rank, int size);

}  // namespace yoke::comm::shared
