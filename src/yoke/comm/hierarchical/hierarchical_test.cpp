#include "yoke/comm/hierarchical/hierarchical.h"

#include <gmock/gmock.h>

#include <thread>

#include "yoke/comm/polling_for_tests.h"
#include "yoke/comm/queue/request.h"
#include "yoke/comm/shared/local.h"

namespace yoke::comm {
namespace {

using plan::Collective;

TEST(MachineLayout, GroupsRanksByMachine) {
  std::vector<std::string> names{"a", "b", "a", "b", "a"};
  MachineLayout layout = MachineLayout::of(2, names);
  EXPECT_EQ(layout.machines, (std::vector<std::vector<int>>{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(layout.machine(), 0);
  EXPECT_EQ(layout.index(), 1);
  EXPECT_FALSE(layout.equal());
  EXPECT_TRUE(layout.cross().empty());
  EXPECT_EQ(MachineLayout::of(0, names).cross(), (std::vector<int>{0, 1}));
  std::vector<int> members{4, 2, 3};
  MachineLayout part = layout.of_members(members);
  EXPECT_EQ(part.rank, 1);
  EXPECT_EQ(part.machines, (std::vector<std::vector<int>>{{0, 1}, {2}}));
}

// Ranks are threads; `machines[r]` says where rank r would be. Everything below is local backends.
class Cluster {
 public:
  explicit Cluster(std::vector<std::string> machines) : machines_(std::move(machines)) {
    size_ = static_cast<int>(machines_.size());
    auto failure = std::make_shared<cluster::Failure>();
    flat_ = make_local_backends(size_, failure);
    locals_.resize(machines_.size());
    for (const auto& ranks : MachineLayout::of(0, machines_).machines) {
      auto backends = make_local_backends(static_cast<int>(ranks.size()), failure);
      for (size_t i = 0; i < ranks.size(); ++i)
        locals_[static_cast<size_t>(ranks[i])] = std::move(backends[i]);
    }
  }

  struct Rank {
    int rank;
    int size;
    Backend& backend;
    RequestChecker check;
    const Backend* cross = nullptr;
    uint64_t number = 0;
    void run(Operation operation) {
      operation.descriptor.number = ++number;
      operation.fingerprint = operation.descriptor.fingerprint();
      backend.run(operation, Deadline::after(20));
    }
  };

  void run(const std::function<void(Rank&)>& body) {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size_; ++r) {
      threads.emplace_back([this, r, &body] {
        try {
          auto at = static_cast<size_t>(r);
          MachineLayout layout = MachineLayout::of(r, machines_);
          auto cross = split_cross(*flat_[at], layout, 1, Deadline::after(20));
          const Backend* crossing = cross.get();
          auto backend = make_hierarchical_backend(std::move(locals_[at]), std::move(cross),
                                                   std::move(flat_[at]), layout);
          Rank rank{r, size_, *backend, RequestChecker{r, size_}, crossing};
          body(rank);
          rank.run(rank.check.barrier());
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << r << ": " << error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }

 private:
  std::vector<std::string> machines_;
  int size_;
  std::vector<std::unique_ptr<Backend>> flat_;
  std::vector<std::unique_ptr<Backend>> locals_;
};

const std::vector<std::vector<std::string>> kClusters = {
    {"a", "a", "b", "b"}, {"a", "b", "a", "b"},           {"a", "a", "a", "b", "b"},
    {"a", "b", "c"},      {"a", "b", "b", "c", "a", "c"}, {"a", "a"},
};

TEST(Hierarchical, EverySmallOperationIsDoneByPolling) {
  for (const auto& machines : kClusters) {
    Cluster(machines).run(
        [](Cluster::Rank& rank) { test::poll_every_operation(rank.backend, rank.rank, rank.size); });
  }
}

double value(int rank, int64_t i) {
  return static_cast<double>((i * 5 + rank * 7) % 13);
}

std::vector<double> filled(int rank, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = value(rank, static_cast<int64_t>(i));
  return out;
}

double sum(int size, int64_t i) {
  double out = 0;
  for (int r = 0; r < size; ++r) out += value(r, i);
  return out;
}

TEST(Hierarchical, AllReduceEqualsTheFlatOneOnEveryLayout) {
  for (const auto& machines : kClusters) {
    Cluster(machines).run([&](Cluster::Rank& rank) {
      for (int64_t count : {0, 1, 5, 100, 10'007}) {
        std::vector<double> data = filled(rank.rank, count), mean = data;
        rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
        rank.run(rank.check.all_reduce(mean, ReduceOp::kMean));
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_DOUBLE_EQ(data[static_cast<size_t>(i)], sum(rank.size, i));
          ASSERT_DOUBLE_EQ(mean[static_cast<size_t>(i)], sum(rank.size, i) / rank.size);
        }
      }
    });
  }
}

TEST(Hierarchical, BroadcastAndReduceKnowTheirRoot) {
  for (const auto& machines : kClusters) {
    Cluster(machines).run([&](Cluster::Rank& rank) {
      for (int root = 0; root < rank.size; ++root) {
        std::vector<double> data = filled(rank.rank, 777);
        rank.run(rank.check.broadcast(data, root));
        EXPECT_EQ(data, filled(root, 777));
        data = filled(rank.rank, 777);
        rank.run(rank.check.reduce(data, root, ReduceOp::kMean));
        for (int64_t i = 0; i < 777 && rank.rank == root; ++i)
          ASSERT_DOUBLE_EQ(data[static_cast<size_t>(i)], sum(rank.size, i) / rank.size);
      }
    });
  }
}

TEST(Hierarchical, AllGatherKeepsTheOrderOfRanks) {
  for (const auto& machines : kClusters) {
    Cluster(machines).run([&](Cluster::Rank& rank) {
      for (bool equal : {true, false}) {
        std::vector<int64_t> counts;
        std::vector<double> expected;
        for (int r = 0; r < rank.size; ++r) {
          counts.push_back(equal ? 100 : r * r % 5 * 10);
          std::vector<double> part = filled(r, counts.back());
          expected.insert(expected.end(), part.begin(), part.end());
        }
        std::vector<double> input = filled(rank.rank, counts[static_cast<size_t>(rank.rank)]);
        std::vector<double> output(expected.size(), -1);
        rank.run(rank.check.all_gather(input, output, equal ? std::vector<int64_t>{} : counts));
        EXPECT_EQ(output, expected);
      }
    });
  }
}

TEST(Hierarchical, ReduceScatterGivesEveryRankItsPart) {
  for (const auto& machines : kClusters) {
    Cluster(machines).run([&](Cluster::Rank& rank) {
      for (int64_t part : {0, 1, 7, 5000}) {
        const std::vector<double> input = filled(rank.rank, part * rank.size);
        std::vector<double> sums(static_cast<size_t>(part)), means = sums;
        rank.run(rank.check.reduce_scatter(input, sums, ReduceOp::kSum));
        rank.run(rank.check.reduce_scatter(input, means, ReduceOp::kMean));
        for (int64_t i = 0; i < part; ++i) {
          double wants = sum(rank.size, rank.rank * part + i);
          ASSERT_DOUBLE_EQ(sums[static_cast<size_t>(i)], wants);
          ASSERT_DOUBLE_EQ(means[static_cast<size_t>(i)], wants / rank.size);
        }
        EXPECT_EQ(input, filled(rank.rank, part * rank.size));
      }
    });
  }
}

// Flat, every rank would send (M-1)/M of S to other machines; m ranks of a machine share that.
TEST(Hierarchical, ReduceScatterCrossesWithItsShareOnly) {
  for (size_t cluster : {0, 1, 4}) {
    Cluster(kClusters[cluster]).run([&](Cluster::Rank& rank) {
      const int64_t machines = cluster == 4 ? 3 : 2, per_machine = 2, part = 300;
      std::vector<double> input = filled(rank.rank, part * rank.size), output(300);
      int64_t before = rank.cross->counters().bytes_sent;
      rank.run(rank.check.reduce_scatter(input, output, ReduceOp::kSum));
      int64_t whole = part * rank.size * static_cast<int64_t>(sizeof(double));
      EXPECT_EQ(rank.cross->counters().bytes_sent - before, whole * (machines - 1) / machines / per_machine);
      EXPECT_EQ(rank.backend.counters().algorithm, plan::Algorithm::kHierarchical);
    });
  }
}

TEST(Hierarchical, WhatGainsNothingByItGoesFlat) {
  Cluster(kClusters[0]).run([&](Cluster::Rank& rank) {
    std::vector<double> input = filled(rank.rank, 40);
    std::vector<double> exchanged(40);
    int64_t before = rank.cross->counters().bytes_sent;
    rank.run(rank.check.all_to_all(input, exchanged));
    for (int64_t i = 0; i < 40; ++i)
      EXPECT_EQ(exchanged[static_cast<size_t>(i)], value(static_cast<int>(i / 10), rank.rank * 10 + i % 10));
    EXPECT_EQ(rank.cross->counters().bytes_sent, before);
    EXPECT_EQ(rank.backend.counters().algorithm, plan::Algorithm::kDirect);
  });
}

// 60000 + 60000 is no fp16, their mean is.
TEST(Hierarchical, MeansOfLargeFp16DoNotOverflow) {
  constexpr uint16_t kLarge = 0x7b53;  // 60000
  for (const auto& machines : kClusters) {
    Cluster(machines).run([&](Cluster::Rank& rank) {
      for (int64_t count : {5, 30'000}) {
        std::vector<uint16_t> data(static_cast<size_t>(count), kLarge), root = data;
        rank.run(rank.check.all_reduce(Buffer(data.data(), count, DataType::kFloat16), ReduceOp::kMean));
        for (uint16_t bits : data) ASSERT_NEAR(bits, kLarge, 3) << machines.size();
        rank.run(rank.check.reduce(Buffer(root.data(), count, DataType::kFloat16), 1, ReduceOp::kMean));
        for (uint16_t bits : root) {
          if (rank.rank == 1) {
            ASSERT_NEAR(bits, kLarge, 3) << machines.size();
          }
        }
      }
    });
  }
}

TEST(Hierarchical, TransfersGoNearAndFar) {
  Cluster(kClusters[1]).run([&](Cluster::Rank& rank) {
    std::vector<double> out(5000, rank.rank), in(5000, -1);
    std::vector<Transfer> transfers{rank.check.transfer(true, out, (rank.rank + 1) % 4, 3),
                                    rank.check.transfer(false, in, (rank.rank + 3) % 4, 3)};
    std::vector<Transfer*> left;
    for (Transfer& one : transfers) {
      one.descriptor.number = 1;
      one.fingerprint = one.descriptor.fingerprint();
      left.push_back(&one);
    }
    Deadline limit = Deadline::after(20);
    while (!left.empty() && !limit.passed()) {
      if (std::erase_if(left, [&](Transfer* one) { return rank.backend.advance(*one); }) == 0)
        rank.backend.wait_for(left, Deadline::after(0.02));
    }
    EXPECT_TRUE(left.empty());
    EXPECT_EQ(in, std::vector<double>(in.size(), (rank.rank + 3) % 4));
  });
}

TEST(Hierarchical, SubGroupsAreHierarchicalWhereTheyCrossMachines) {
  Cluster({"a", "a", "a", "b", "b", "b"}).run([&](Cluster::Rank& rank) {
    bool near = rank.rank < 2;
    std::vector<int> members = near ? std::vector<int>{1, 0} : std::vector<int>{2, 3, 4, 5};
    auto backend = rank.backend.split(members, near ? 50 : 51, Deadline::after(20));
    EXPECT_EQ(backend->name(), near ? "local" : "hierarchical");
    auto position = static_cast<int>(std::find(members.begin(), members.end(), rank.rank) - members.begin());
    int size = static_cast<int>(members.size());
    Cluster::Rank sub{position, size, *backend, RequestChecker{position, size}};
    std::vector<double> data(20'000, rank.rank);
    sub.run(sub.check.all_reduce(data, ReduceOp::kSum));
    EXPECT_EQ(data, std::vector<double>(data.size(), near ? 1 : 14));
    sub.run(sub.check.barrier());
  });
}

}  // namespace
}  // namespace yoke::comm
