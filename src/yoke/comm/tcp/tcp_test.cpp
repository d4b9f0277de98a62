#include "yoke/comm/tcp/tcp.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "yoke/comm/polling_for_tests.h"
#include "yoke/comm/tcp/executor.h"
#include "yoke/comm/tcp/test_tcp_ranks.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm::tcp {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr int64_t kLarge = 150'001;  // several frames, odd

TEST(Tcp, EverySmallOperationIsDoneByPolling) {
  TcpRanks(3).run([](TestRank& rank) { test::poll_every_operation(*rank.backend, rank.rank, rank.size); });
}

double value(int rank, int64_t i) {
  return static_cast<double>((i * 7 + rank * 3) % 11 + 1);
}

std::vector<double> filled(int rank, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = value(rank, static_cast<int64_t>(i));
  return out;
}

double combined(int size, int64_t i, ReduceOp op) {
  double out = value(0, i);
  for (int r = 1; r < size; ++r) {
    double x = value(r, i);
    if (op == ReduceOp::kSum || op == ReduceOp::kMean) out += x;
    if (op == ReduceOp::kMax) out = std::max(out, x);
    if (op == ReduceOp::kMin) out = std::min(out, x);
    if (op == ReduceOp::kProd) out *= x;
  }
  return op == ReduceOp::kMean ? out / size : out;
}

void expect_combined(const std::vector<double>& data, int64_t begin, int size, ReduceOp op,
                     const std::string& what) {
  for (size_t i = 0; i < data.size(); ++i) {
    ASSERT_DOUBLE_EQ(data[i], combined(size, begin + static_cast<int64_t>(i), op)) << what << " at " << i;
  }
}

std::vector<std::optional<Algorithm>> choices(Collective op) {
  std::vector<std::optional<Algorithm>> out{std::nullopt};
  for (Algorithm algorithm : plan::algorithms_for(op)) out.emplace_back(algorithm);
  return out;
}

std::string text(Collective op, std::optional<Algorithm> algorithm, int size, int64_t count) {
  return fmt::format("{} by {}, {} ranks, {} elements", plan::to_string(op),
                     algorithm ? plan::to_string(*algorithm) : "choice", size, count);
}

class EveryGroup : public ::testing::TestWithParam<int> {
 protected:
  std::vector<int64_t> counts() const { return {0, 1, 3, GetParam(), 1000, kLarge}; }
};
INSTANTIATE_TEST_SUITE_P(Tcp, EveryGroup, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(EveryGroup, AllReduceCombinesOnEveryRankByEveryAlgorithm) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllReduce)) {
      for (int64_t count : counts()) {
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
          std::vector<double> data = filled(rank.rank, count);
          rank.run(rank.check.all_reduce(data, op), algorithm);
          expect_combined(data, 0, rank.size, op, text(Collective::kAllReduce, algorithm, rank.size, count));
        }
      }
    }
  });
}

TEST_P(EveryGroup, ReduceCombinesOnTheRoot) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kReduce)) {
      for (int64_t count : counts()) {
        for (int root : {0, rank.size - 1}) {
          std::vector<double> data = filled(rank.rank, count);
          rank.run(rank.check.reduce(data, root, ReduceOp::kMean), algorithm);
          if (rank.rank == root)
            expect_combined(data, 0, rank.size, ReduceOp::kMean,
                            text(Collective::kReduce, algorithm, rank.size, count));
        }
      }
    }
  });
}

TEST_P(EveryGroup, ReduceScatterLeavesTheInputAlone) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kReduceScatter)) {
      for (int64_t part : {0, 1, 333, 40'001}) {
        std::vector<double> input = filled(rank.rank, part * rank.size);
        std::vector<double> output(static_cast<size_t>(part), -1);
        rank.run(rank.check.reduce_scatter(input, output, ReduceOp::kMean), algorithm);
        expect_combined(output, part * rank.rank, rank.size, ReduceOp::kMean,
                        text(Collective::kReduceScatter, algorithm, rank.size, part));
        EXPECT_EQ(input, filled(rank.rank, part * rank.size));
      }
    }
  });
}

TEST_P(EveryGroup, ReduceScatterWorksInItsOwnPart) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kReduceScatter)) {
      std::vector<double> input = filled(rank.rank, 500 * rank.size);
      Buffer own(input.data() + 500 * rank.rank, 500, DataType::kFloat64);
      rank.run(rank.check.reduce_scatter(input, own, ReduceOp::kSum), algorithm);
      std::vector<double> expected = filled(rank.rank, 500 * rank.size);
      for (int64_t i = 500 * rank.rank; i < 500 * (rank.rank + 1); ++i)
        expected[static_cast<size_t>(i)] = combined(rank.size, i, ReduceOp::kSum);
      EXPECT_EQ(input, expected);
    }
  });
}

TEST_P(EveryGroup, AllGatherTakesEqualAndUnequalParts) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllGather)) {
      for (bool equal : {true, false}) {
        std::vector<int64_t> counts(static_cast<size_t>(rank.size), 20'001);
        for (size_t r = 0; r < counts.size() && !equal; ++r)
          counts[r] = static_cast<int64_t>(r * r % 3) * 9'999;
        std::vector<double> expected;
        for (int r = 0; r < rank.size; ++r) {
          std::vector<double> part = filled(r, counts[static_cast<size_t>(r)]);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        std::vector<double> input = filled(rank.rank, counts[static_cast<size_t>(rank.rank)]);
        std::vector<double> output(expected.size(), -1);
        rank.run(rank.check.all_gather(input, output, equal ? std::vector<int64_t>{} : counts), algorithm);
        EXPECT_EQ(output, expected) << text(Collective::kAllGather, algorithm, rank.size, counts[0]);
      }
    }
  });
}

TEST_P(EveryGroup, AllToAllExchangesParts) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllToAll)) {
      for (int64_t part : {0, 1, 30'001}) {
        std::vector<double> input = filled(rank.rank, part * rank.size);
        std::vector<double> output(input.size(), -1);
        rank.run(rank.check.all_to_all(input, output), algorithm);
        for (size_t i = 0; i < output.size(); ++i) {
          int64_t from = static_cast<int64_t>(i) / part;
          ASSERT_EQ(output[i],
                    value(static_cast<int>(from), rank.rank * part + static_cast<int64_t>(i) % part));
        }
      }
    }
  });
}

TEST_P(EveryGroup, BroadcastGatherAndScatterKnowTheirRoot) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (int root : {0, rank.size / 2}) {
      for (int64_t count : {0, 1, 1000, 70'001}) {
        for (auto algorithm : choices(Collective::kBroadcast)) {
          std::vector<double> data = filled(rank.rank, count);
          rank.run(rank.check.broadcast(data, root), algorithm);
          EXPECT_EQ(data, filled(root, count)) << text(Collective::kBroadcast, algorithm, rank.size, count);
        }
        std::vector<double> all;
        for (int r = 0; r < rank.size; ++r) {
          std::vector<double> part = filled(r, count);
          all.insert(all.end(), part.begin(), part.end());
        }
        for (auto algorithm : choices(Collective::kGather)) {
          std::vector<double> input = filled(rank.rank, count);
          std::vector<double> output(rank.rank == root ? all.size() : 0);
          rank.run(rank.check.gather(input, output, root), algorithm);
          if (rank.rank == root) {
            EXPECT_EQ(output, all) << text(Collective::kGather, algorithm, rank.size, count);
          }
        }
        for (auto algorithm : choices(Collective::kScatter)) {
          std::vector<double> input = rank.rank == root ? all : std::vector<double>{};
          std::vector<double> output(static_cast<size_t>(count), -1);
          rank.run(rank.check.scatter(input, output, root), algorithm);
          EXPECT_EQ(output, filled(rank.rank, count))
              << text(Collective::kScatter, algorithm, rank.size, count);
        }
      }
    }
  });
}

TEST_P(EveryGroup, CountersEqualTheFormulas) {
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (Algorithm algorithm : plan::algorithms_for(Collective::kAllReduce)) {
      for (int64_t count : {1, 3, 1000, 150'001}) {
        Counters before = rank.backend->counters();
        std::vector<double> data = filled(rank.rank, count);
        Operation operation = rank.check.all_reduce(data, ReduceOp::kSum);
        plan::CollectiveRequest request = request_of(operation, rank.rank, rank.size);
        request.algorithm = algorithm;
        plan::Traffic traffic = plan::traffic_of(plan::collective_steps(request));
        rank.run(operation, algorithm);
        Counters after = rank.backend->counters();
        EXPECT_EQ(after.bytes_sent - before.bytes_sent, traffic.elements_sent * 8);
        EXPECT_EQ(after.messages_sent - before.messages_sent, traffic.messages_sent);
        EXPECT_EQ(after.operations, before.operations + 1);
      }
    }
  });
}

TEST_P(EveryGroup, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  TcpRanks(GetParam()).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kBarrier)) {
      for (int round = 0; round < 3; ++round) {
        int before = ++came;
        rank.run(rank.check.barrier(), algorithm);
        EXPECT_GE(came.load(), before / rank.size * rank.size);
      }
    }
  });
}

template <class T>
void sums_type(DataType type, int size) {
  TcpRanks(size).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllReduce)) {
      std::vector<T> data(10'007);
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<T>(i % 5 + static_cast<size_t>(rank.rank));
      rank.run(
          rank.check.all_reduce(Buffer(data.data(), static_cast<int64_t>(data.size()), type), ReduceOp::kSum),
          algorithm);
      for (size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], static_cast<T>(static_cast<size_t>(size) * (i % 5) +
                                          static_cast<size_t>(size * (size - 1) / 2)));
    }
  });
}

TEST(Tcp, SumsEveryNumberFormat) {
  sums_type<float>(DataType::kFloat32, 3);
  sums_type<int8_t>(DataType::kInt8, 3);
  sums_type<uint8_t>(DataType::kUint8, 3);
  sums_type<int16_t>(DataType::kInt16, 3);
  sums_type<int32_t>(DataType::kInt32, 3);
  sums_type<int64_t>(DataType::kInt64, 3);
}

TEST(Tcp, SixteenBitSumsAreRoundedOnce) {
  for (DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      constexpr int kRanks = 4;
      constexpr size_t kCount = 5001;
      std::vector<std::vector<uint16_t>> inputs(kRanks, std::vector<uint16_t>(kCount));
      for (size_t r = 0; r < kRanks; ++r) {
        for (size_t i = 0; i < kCount; ++i)
          inputs[r][i] = static_cast<uint16_t>(0x3c00 + (i * 37 + r * 101) % 900);
      }
      std::vector<uint16_t> expected(kCount);
      void* out = expected.data();
      std::vector<const void*> sources;
      for (auto& input : inputs) sources.push_back(input.data());
      kernels::reference::reduce(std::span<void* const>(&out, 1), sources, kCount, type, op);
      TcpRanks(kRanks).run([&](TestRank& rank) {
        std::vector<uint16_t> data = inputs[static_cast<size_t>(rank.rank)];
        rank.run(rank.check.all_reduce(Buffer(data.data(), kCount, type), op));
        EXPECT_EQ(data, expected) << to_string(type);
      });
    }
  }
}

// 60000 + 60000 is no fp16, their mean is.
TEST(Tcp, MeansOfLargeFp16DoNotOverflowByAnyAlgorithm) {
  constexpr uint16_t kLargeHalf = 0x7b53;  // 60000
  TcpRanks(4).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllReduce)) {
      std::vector<uint16_t> data(5001, kLargeHalf);
      rank.run(rank.check.all_reduce(Buffer(data.data(), 5001, DataType::kFloat16), ReduceOp::kMean),
               algorithm);
      EXPECT_EQ(data, std::vector<uint16_t>(5001, kLargeHalf))
          << text(Collective::kAllReduce, algorithm, 4, 5001);
    }
    for (auto algorithm : choices(Collective::kReduceScatter)) {
      std::vector<uint16_t> input(4000, kLargeHalf), output(1000);
      rank.run(rank.check.reduce_scatter(Buffer(input.data(), 4000, DataType::kFloat16),
                                         Buffer(output.data(), 1000, DataType::kFloat16), ReduceOp::kMean),
               algorithm);
      EXPECT_EQ(output, std::vector<uint16_t>(1000, kLargeHalf));
      EXPECT_EQ(input, std::vector<uint16_t>(4000, kLargeHalf));
    }
    for (auto algorithm : choices(Collective::kReduce)) {
      std::vector<uint16_t> data(5001, kLargeHalf);
      rank.run(rank.check.reduce(Buffer(data.data(), 5001, DataType::kFloat16), 2, ReduceOp::kMean),
               algorithm);
      if (rank.rank == 2) {
        EXPECT_EQ(data, std::vector<uint16_t>(5001, kLargeHalf));
      }
    }
  });
}

TEST(Tcp, ResultsAreTheSameBitsOnAllRanksAndInAllRuns) {
  constexpr int kRanks = 5;
  std::vector<std::vector<float>> results(2 * kRanks);
  for (int run = 0; run < 2; ++run) {
    TcpRanks(kRanks).run([&](TestRank& rank) {
      std::vector<float>& data = results[static_cast<size_t>(run * kRanks + rank.rank)];
      for (auto algorithm : plan::algorithms_for(Collective::kAllReduce)) {
        std::vector<float> part(40'003);
        for (size_t i = 0; i < part.size(); ++i)
          part[i] = 1.0f / static_cast<float>(i % 97 + 1 + static_cast<size_t>(rank.rank) * 13);
        rank.run(rank.check.all_reduce(part, ReduceOp::kSum), algorithm);
        data.insert(data.end(), part.begin(), part.end());
      }
    });
  }
  for (const auto& other : results)
    EXPECT_EQ(std::memcmp(other.data(), results[0].data(), results[0].size() * sizeof(float)), 0);
}

TEST(Tcp, AnExchangeCombinesInTheOrderOfRanks) {
  // Of two zeros max takes the second: the result shows who came last.
  constexpr int kRanks = 4;
  for (int negative = 0; negative < kRanks; ++negative) {
    TcpRanks(kRanks).run([&](TestRank& rank) {
      std::vector<float> data(3000, rank.rank == negative ? -0.0f : 0.0f);
      rank.run(rank.check.all_reduce(data, ReduceOp::kMax), Algorithm::kExchange);
      for (float one : data) ASSERT_EQ(std::signbit(one), negative == kRanks - 1);
    });
  }
}

TEST(Tcp, SeveralLanesCarryOneOperation) {
  TcpSetup like;
  like.lanes = 3;
  TcpRanks(4, like).run([&](TestRank& rank) {
    for (auto algorithm : choices(Collective::kAllReduce)) {
      for (int64_t count : {1, 20'000, 400'001}) {
        std::vector<double> data = filled(rank.rank, count);
        rank.run(rank.check.all_reduce(data, ReduceOp::kMean), algorithm);
        expect_combined(data, 0, rank.size, ReduceOp::kMean,
                        text(Collective::kAllReduce, algorithm, 4, count));
      }
    }
  });
}

TEST(Tcp, SubGroupsWorkSideBySide) {
  TcpRanks(5).run([&](TestRank& rank) {
    std::vector<int> members = rank.rank % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
    auto position = std::find(members.begin(), members.end(), rank.rank) - members.begin();
    TestRank sub{static_cast<int>(position), static_cast<int>(members.size()), nullptr, rank.failure, {}};
    sub.check = {sub.rank, sub.size};
    sub.backend =
        rank.backend->split(members, 100 + static_cast<uint64_t>(rank.rank % 2), Deadline::after(5));
    std::vector<double> data(70'000, rank.rank);
    sub.run(sub.check.all_reduce(data, ReduceOp::kSum));
    EXPECT_EQ(data, std::vector<double>(data.size(), rank.rank % 2 == 0 ? 6 : 4));
    rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
    EXPECT_EQ(data, std::vector<double>(data.size(), 3 * 6 + 2 * 4));
  });
}

TEST(Tcp, MemoryIsAlignedAndLives) {
  TcpRanks(1).run([](TestRank& rank) {
    Memory memory = rank.backend->allocate(100);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data.get()) % 64, 0u);
    EXPECT_EQ(memory.bytes, 100u);
    std::memset(memory.data.get(), 1, 100);
  });
}

}  // namespace
}  // namespace yoke::comm::tcp
