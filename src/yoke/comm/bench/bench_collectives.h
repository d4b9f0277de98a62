// Measures the speed of collectives with the method of nccl-tests, and checks their results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

struct CollectiveBench {
  plan::Collective op = plan::Collective::kAllReduce;
  int64_t bytes = 1 << 20;  // of the whole array; all_gather and reduce_scatter count all parts
  DataType type = DataType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  std::optional<plan::Algorithm> algorithm;
  int iterations = 0;           // timed samples; 0: 20, fewer for large arrays
  bool check = true;            // run once more and compare with the expected result
  int spares = 0;               // ranks of the communicator that only sum, by plan::Algorithm::kSummation
  bool private_memory = false;  // use ordinary memory instead of Communicator::allocate()
};

struct CollectiveResult {
  double median = 0;  // seconds per operation, on the slowest rank
  double p95 = 0;
  double algbw = 0;                          // bytes / s: bytes / median
  double busbw = 0;                          // bytes / s: algbw * bus_factor()
  std::vector<int64_t> bytes_sent;           // payload of one operation, by rank
  std::vector<int64_t> messages;             // sent in one operation, by rank
  std::optional<plan::Algorithm> algorithm;  // used; empty if the library below chooses (mpi, nccl)
  // Memory-bandwidth limit of this machine (limit.h) / median. Only for fp32 sum all_reduce over shm and
  // local.
  std::optional<double> limit_fraction;
  bool correct = true;  // on all ranks; true when not checked
};

// Copies between host memory and memory from Communicator::allocate().
using Copy = std::function<void(void* to, const void* from, size_t bytes)>;

// Collective: all ranks pass the same values and get the same result.
CollectiveResult bench_collective(Communicator& comm, const CollectiveBench& bench, const Copy& copy);

// busbw / algbw: 2(N-1)/N for all_reduce, (N-1)/N where each rank keeps a part, 1 for broadcast and reduce.
double bus_factor(plan::Collective op, int ranks);

}  // namespace yoke::comm
