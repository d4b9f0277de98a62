#include "yoke/comm/shared/common_memory.h"

#include <numeric>

#include "yoke/comm/shared/ranks_for_tests.h"

namespace yoke::comm {
namespace {

using testing::Rank;

// What `root` made, on every rank.
Memory common(Rank& rank, size_t bytes, int root = 0) {
  Backend::Place place;
  Memory memory;
  if (rank.rank == root) memory = rank.backend.make_common(bytes, place);
  std::vector<int64_t> told = {place.heap, place.offset};
  rank.run(rank.ask().broadcast(told, root));
  if (rank.rank != root) memory = rank.backend.open_common({told[0], told[1]}, bytes);
  return memory;
}

void write_and_read(Rank& rank) {
  auto size = static_cast<size_t>(rank.size);
  Memory memory = common(rank, size * sizeof(int64_t), rank.size - 1);
  auto* numbers = static_cast<int64_t*>(memory.data.get());
  numbers[rank.rank] += 10 + rank.rank;  // it comes zeroed
  rank.run(rank.ask().barrier());
  for (int64_t r = 0; r < rank.size; ++r) EXPECT_EQ(numbers[r], 10 + r);
  rank.run(rank.ask().barrier());
}

void let_go_in_turn(Rank& rank) {
  for (int round = 0; round < 3; ++round) {
    Memory memory = common(rank, 5 << 20);
    auto* bytes = static_cast<uint8_t*>(memory.data.get());
    bytes[(5 << 20) - 1 - rank.rank] = static_cast<uint8_t>(7 + rank.rank);
    rank.run(rank.ask().barrier());
    for (int r = 0; r < rank.size; ++r) {  // its maker first
      if (rank.rank == r) memory = {};
      rank.run(rank.ask().barrier());
      if (rank.rank > r) {
        EXPECT_EQ(bytes[(5 << 20) - 1 - rank.rank], 7 + rank.rank);
      }
    }
  }
}

TEST(CommonMemory, IsTheSameForAllRanks) {
  testing::run_local(3, write_and_read);
  testing::run_shm(3, write_and_read);
}

TEST(CommonMemory, StaysUntilTheLastOneLetsGo) {
  testing::run_local(3, let_go_in_turn);
  testing::run_shm(3, let_go_in_turn);
}

}  // namespace
}  // namespace yoke::comm
