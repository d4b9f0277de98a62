// What a collective does to the data, as plain data: ranges that are copied or combined from some ranks to
// others. The same list is carried out in place, or through slots of shared memory.
#pragma once

#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/operation.h"

namespace yoke::comm::shared {

inline constexpr int kEverybody = -1;

// `count` elements of the inputs of all ranks, combined, or of one, copied, to the outputs of all ranks or of
// one. Offsets are in elements and alike on all of them.
struct Work {
  int64_t count = 0;
  int source = kEverybody;
  int64_t source_offset = 0;
  int out = kEverybody;
  int64_t out_offset = 0;
  int lane = 0;  // tells the ranges apart that one rank gives away
};

struct WorkList {
  std::vector<Work> works;
  int lanes = 1;        // of each rank
  int64_t longest = 0;  // count of the largest
};

// Fills `list` (its memory is reused).
void list_works(const Operation& operation, int size, WorkList& list);

bool uses_input(const Operation& operation, int rank);
bool uses_output(const Operation& operation, int rank);

// Payload that `rank` gives to others and gets from them, by the rule that every rank owns one part of the
// data (plan::part_of): all_reduce: the other parts of its input to their owners and its own combined part to
// everybody, which is 2 (N-1)/N of the data when the parts are equal; reduce: its input to the root, once;
// reduce_scatter, all_to_all, scatter: everything but its own part; all_gather, broadcast: what it has to N -
// 1 others; gather: its input to the root. Messages: one for each other rank that gets something, and twice
// that for all_reduce.
Counters traffic(const Operation& operation, int rank, int size);

}  // namespace yoke::comm::shared
