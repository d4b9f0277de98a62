#include "yoke/comm/summation/summation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "yoke/base/error.h"
#include "yoke/comm/summation/announcement.h"
#include "yoke/comm/summation/local_summation.h"
#include "yoke/plan/summation/shares.h"

namespace yoke::comm {
namespace {

// `body` on every worker, on a thread each. Returns what the first failing one threw.
std::string run_workers(LocalSummation& group, int workers, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(workers));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < workers; ++rank)
      threads.emplace_back([&, rank] {
        try {
          auto comm = group.worker(rank);
          body(*comm);
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      });
  }
  for (const std::string& error : errors)
    if (!error.empty()) return error;
  return "";
}

template <class T>
std::vector<T> own_values(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>((i % 113) + 1) * static_cast<T>(rank + 1);
  return values;
}

template <class T>
void expect_sums(int workers, int spares, size_t count, ReduceOp op) {
  LocalSummation group({.workers = workers, .spares = spares, .part_bytes = 100'000});
  std::string error = run_workers(group, workers, [&](Communicator& comm) {
    EXPECT_EQ(comm.size(), workers);
    for (int round = 0; round < 3; ++round) {
      std::vector<T> data = own_values<T>(comm.rank(), count);
      comm.all_reduce(data, op, {.name = "gradients"}).wait();
      const double factor = workers * (workers + 1) / 2.0 / (op == ReduceOp::kMean ? workers : 1);
      for (size_t i = 0; i < count; ++i)
        ASSERT_DOUBLE_EQ(static_cast<double>(data[i]), static_cast<double>((i % 113) + 1) * factor)
            << workers << " workers, " << spares << " spares, at " << i;
    }
  });
  EXPECT_EQ(error, "");
  group.finish();
}

TEST(Summation, AddsUpWhatTheWorkersHave) {
  for (int workers : {1, 2, 3, 4})
    for (int spares = 0; spares <= workers; spares += workers > 2 ? 2 : 1)
      expect_sums<float>(workers, spares, 150'001, ReduceOp::kSum);
}

TEST(Summation, DividesAMeanByTheNumberOfWorkers) {
  expect_sums<double>(2, 1, 50'001, ReduceOp::kMean);
  expect_sums<float>(4, 3, 50'001, ReduceOp::kMean);
  expect_sums<float>(2, 2, 50'001, ReduceOp::kMean);
}

TEST(Summation, AddsSmallOnesAmongTheWorkersAlone) {
  LocalSummation group({.workers = 2, .spares = 1});
  std::string error = run_workers(group, 2, [](Communicator& comm) {
    std::vector<float> small(3, static_cast<float>(comm.rank()));
    comm.all_reduce(small, ReduceOp::kSum).wait();
    EXPECT_EQ(small, std::vector<float>(3, 1));
    std::vector<float> largest(100'000, static_cast<float>(comm.rank()));
    comm.all_reduce(largest, ReduceOp::kMax).wait();
    EXPECT_EQ(largest, std::vector<float>(100'000, 1)) << "only sums and means have spare ranks";
  });
  EXPECT_EQ(error, "");
  group.finish();
  EXPECT_EQ(group.counters(2).bytes_received, 2 * 16 + sizeof(Announcement))
      << "what a split exchanges, and that the workers leave";
}

TEST(Summation, SeveralMayBeInFlightAndEndInOrder) {
  LocalSummation group({.workers = 2, .spares = 2});
  std::string error = run_workers(group, 2, [](Communicator& comm) {
    std::vector<std::vector<float>> buckets;
    for (size_t bucket = 0; bucket < 12; ++bucket)
      buckets.emplace_back(10'000 + 7'000 * (bucket % 3), static_cast<float>(bucket));
    std::vector<Pending> pending;
    for (auto& bucket : buckets) pending.push_back(comm.all_reduce(bucket, ReduceOp::kSum));
    for (size_t bucket = 0; bucket < 12; ++bucket) {
      pending[bucket].wait();
      EXPECT_EQ(buckets[bucket].back(), 2 * static_cast<float>(bucket));
      EXPECT_EQ(buckets[bucket].front(), 2 * static_cast<float>(bucket));
    }
  });
  EXPECT_EQ(error, "");
  group.finish();
}

TEST(Summation, EveryRankSendsAndReceivesByTheFormula) {
  constexpr int64_t kCount = 1'000'000;
  constexpr int64_t kPart = 200'000;  // bytes
  for (auto [workers, spares] : {std::pair{2, 1}, {4, 2}, {3, 3}}) {
    LocalSummation group({.workers = workers, .spares = spares, .part_bytes = kPart});
    std::string error = run_workers(group, workers, [&](Communicator& comm) {
      std::vector<float> data(kCount, 1);
      comm.all_reduce(data, ReduceOp::kSum).wait();
    });
    EXPECT_EQ(error, "");
    group.finish();
    const double load = plan::summation_shares(workers, spares).load * kCount * 4;
    for (int rank = 0; rank < workers + spares; ++rank) {
      EXPECT_NEAR(static_cast<double>(group.counters(rank).bytes_sent), load, kPart) << rank;
      EXPECT_NEAR(static_cast<double>(group.counters(rank).bytes_received), load, kPart) << rank;
    }
  }
}

TEST(Summation, TheSameBitsOnAllWorkersAndInAllRuns) {
  std::vector<std::vector<float>> results(6);
  for (size_t run = 0; run < 2; ++run) {
    LocalSummation group({.workers = 3, .spares = 2});
    EXPECT_EQ(run_workers(group, 3,
                          [&](Communicator& comm) {
                            std::vector<float> data(60'001);
                            for (size_t i = 0; i < data.size(); ++i)
                              data[i] = 1.0F / static_cast<float>(i % 97 + 1 +
                                                                  13 * static_cast<size_t>(comm.rank()));
                            comm.all_reduce(data, ReduceOp::kMean).wait();
                            results[run * 3 + static_cast<size_t>(comm.rank())] = data;
                          }),
              "");
    group.finish();
  }
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST(Summation, WorkersThatDisagreeAreNamed) {
  LocalSummation group({.workers = 2, .spares = 1, .timeout = 20});
  std::string error = run_workers(group, 2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 20'000 : 30'000);
    comm.all_reduce(data, ReduceOp::kSum, {.name = "bucket 3"}).wait();
  });
  EXPECT_NE(error.find("bucket 3"), std::string::npos) << error;
  EXPECT_NE(error.find("[20000]"), std::string::npos) << error;
  EXPECT_NE(error.find("[30000]"), std::string::npos) << error;
  EXPECT_THROW(group.finish(), CommError);
}

TEST(Summation, AWorkerThatGivesUpEndsTheSpareRanks) {
  LocalSummation group({.workers = 2, .spares = 1, .timeout = 20});
  std::string error = run_workers(group, 2, [](Communicator& comm) {
    if (comm.rank() == 1) return comm.abandon("out of memory");
    std::vector<float> data(20'000);
    comm.all_reduce(data, ReduceOp::kSum).wait();
  });
  EXPECT_NE(error.find("rank 1 gave up: out of memory"), std::string::npos) << error;
  try {
    group.finish();
    FAIL();
  } catch (const CommError& spare) {
    EXPECT_NE(std::string(spare.what()).find("rank 1 gave up"), std::string::npos) << spare.what();
  }
}

TEST(Summation, IsUsedWhereATrialSaysThatItPays) {
  for (const bool pays : {true, false}) {
    LocalSummation group({.workers = 2, .spares = 1, .least_gain = pays ? 1e-9 : 1e9});
    std::string error = run_workers(group, 2, [&](Communicator& comm) {
      const int64_t before = group.counters(comm.rank()).operations;
      std::vector<float> data(20'000, static_cast<float>(comm.rank()));
      comm.all_reduce(data, ReduceOp::kSum).wait();
      EXPECT_EQ(data, std::vector<float>(20'000, 1));
      EXPECT_EQ(group.counters(comm.rank()).operations - before, pays ? 1 : 0);
    });
    EXPECT_EQ(error, "");
    group.finish();
  }
}

TEST(Announcement, OfSomethingElseIsRefused) {
  std::vector<float> data(5);
  Announcement good(data, ReduceOp::kMean,
                    {.name = "a name that is longer than the forty-seven letters that fit"});
  EXPECT_NO_THROW(good.check());
  EXPECT_EQ(std::string(good.name.data()).size(), 47u);
  EXPECT_EQ(good.bytes(), 20u);
  auto refused = [&](const std::function<void(Announcement&)>& change) {
    Announcement bad = good;
    change(bad);
    EXPECT_THROW(bad.check(), CommError);
  };
  refused([](Announcement& a) { a.last = 2; });
  refused([](Announcement& a) { a.type = 9; });
  refused([](Announcement& a) { a.reduce = 2; });
  refused([](Announcement& a) { a.count = -1; });
  refused([](Announcement& a) { a.count = int64_t{1} << 41; });
  refused([](Announcement& a) { a.timeout = -1; });
  refused([](Announcement& a) { a.timeout = std::nan(""); });
  refused([](Announcement& a) { a.name.back() = 'x'; });
}

}  // namespace
}  // namespace yoke::comm
