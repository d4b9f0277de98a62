// How fast a communicator's operations are, measured as nccl-tests does, and whether their results are right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

struct CollectiveBench {
  plan::Collective op = plan::Collective::kAllReduce;
  int64_t bytes = 1 << 20;  // of the whole array: all_gather and reduce_scatter count all parts
  DataType type = DataType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  std::optional<plan::Algorithm> algorithm;
  int iterations = 0;           // timed samples; 0: 20, fewer for large arrays
  bool check = true;            // compare the result of one more run with the expected one
  bool private_memory = false;  // buffers of the program's own instead of allocate()d ones
};

struct CollectiveResult {
  double median = 0;  // seconds of one operation, of the slowest rank
  double p95 = 0;
  double algbw = 0;                 // bytes / median
  double busbw = 0;                 // algbw x the share that must cross the wires
  std::vector<int64_t> bytes_sent;  // of one operation, by rank: payload
  std::vector<int64_t> messages;
  std::optional<plan::Algorithm> algorithm;  // that ran; none: a library below decides
  // What the memory of this machine allows (limit.h) / median: all_reduce over shm and local, fp32 sums.
  std::optional<double> limit_fraction;
  bool correct = true;  // on all ranks; true when not checked
};

// Copies between host memory and memory from Communicator::allocate().
using Copy = std::function<void(void* to, const void* from, size_t bytes)>;

// Collective: every rank calls it with the same values and gets the same result.
CollectiveResult bench_collective(Communicator& comm, const CollectiveBench& bench, const Copy& copy);

// busbw / algbw: 2(N-1)/N for all_reduce, (N-1)/N where each rank keeps a part, 1 for broadcast and reduce.
double bus_factor(plan::Collective op, int ranks);

}  // namespace yoke::comm
