#include "yoke/comm/queue/queued_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "yoke/base/clock.h"
#include "yoke/comm/polling_for_tests.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/comm/shared/local.h"

namespace yoke::comm {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(AllReduce, SumsOverAllRanks) {
  run_ranks(4, [](Communicator& comm) {
    std::vector<float> x(3, static_cast<float>(comm.rank()));
    comm.all_reduce(x).wait();
    EXPECT_THAT(x, Each(0 + 1 + 2 + 3));
  });
}

TEST(Communicator, CarriesManyOperationsOutInOrder) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<std::vector<float>> buckets;
    for (int i = 0; i < 40; ++i) buckets.emplace_back(i % 2 == 0 ? 5 : 40000, static_cast<float>(i));
    std::vector<Pending> pending;
    for (auto& bucket : buckets) pending.push_back(comm.all_reduce(bucket, ReduceOp::kMean));
    for (auto it = pending.rbegin(); it != pending.rend(); ++it) it->wait();
    for (int i = 0; i < 40; ++i) EXPECT_THAT(buckets[static_cast<size_t>(i)], Each(static_cast<float>(i)));
    EXPECT_EQ(comm.counters().operations, 40);
  });
}

TEST(Communicator, LargeOperationsGoOnWhileNobodyWaits) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> x(1 << 20, 1.0f);
    Pending pending = comm.all_reduce(x);
    Deadline patience = Deadline::after(30);
    while (!pending.done() && !patience.passed()) std::this_thread::yield();
    EXPECT_TRUE(pending.done());
    pending.wait();
    EXPECT_THAT(x, Each(2.0f));
  });
}

TEST(Communicator, EverySmallOperationIsDoneByPolling) {
  auto failure = std::make_shared<cluster::Failure>();
  auto backends = make_local_backends(3, failure);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      EXPECT_NO_THROW(test::poll_every_operation(*backends[static_cast<size_t>(rank)], rank, 3));
    });
}

TEST(Communicator, SmallOperationsAreCarriedOutWhileTheirCallerWaitsForSomethingElse) {
  run_ranks(2, [](Communicator& comm) {
    auto other = comm.split(0, comm.rank(), "other");
    std::vector<float> x(3, 1.0f), y(3, 1.0f);
    // Each rank waits first for what the other one has only issued.
    Pending first = comm.all_reduce(x, ReduceOp::kSum, {.timeout = 30});
    Pending second = other->all_reduce(y, ReduceOp::kSum, {.timeout = 30});
    (comm.rank() == 0 ? first : second).wait();
    (comm.rank() == 0 ? second : first).wait();
    EXPECT_THAT(x, Each(2.0f));
    EXPECT_THAT(y, Each(2.0f));
    // A receive waits for a rank that waits for a barrier.
    Pending barrier = comm.barrier({.timeout = 30});
    if (comm.rank() == 0) barrier.wait();
    comm.rank() == 0 ? comm.send(x, 1, 0, {.timeout = 30}).wait()
                     : comm.receive(y, 0, 0, {.timeout = 30}).wait();
    barrier.wait();
  });
}

TEST(Communicator, EveryOperationGivesTheRightNumbers) {
  run_ranks(3, [](Communicator& comm) {
    auto r = static_cast<int64_t>(comm.rank());
    std::vector<int64_t> all(3);
    comm.all_gather(std::vector<int64_t>{r * 10}, all).wait();
    EXPECT_THAT(all, ElementsAre(0, 10, 20));

    std::vector<int64_t> uneven(6);
    std::vector<int64_t> mine(static_cast<size_t>(r + 1), r);
    comm.all_gather(mine, uneven, std::vector<int64_t>{1, 2, 3}).wait();
    EXPECT_THAT(uneven, ElementsAre(0, 1, 1, 2, 2, 2));

    std::vector<int64_t> part(1);
    comm.reduce_scatter(std::vector<int64_t>{r, r + 1, r + 2}, part).wait();
    EXPECT_EQ(part[0], 3 + 3 * r);

    std::vector<int64_t> swapped(3);
    comm.all_to_all(std::vector<int64_t>{r * 3, r * 3 + 1, r * 3 + 2}, swapped).wait();
    EXPECT_THAT(swapped, ElementsAre(r, r + 3, r + 6));

    std::vector<int64_t> word{r};
    comm.broadcast(word, 2).wait();
    EXPECT_EQ(word[0], 2);

    std::vector<int64_t> gathered(comm.rank() == 1 ? 3 : 0);
    comm.gather(std::vector<int64_t>{r}, gathered, 1).wait();
    if (comm.rank() == 1) {
      EXPECT_THAT(gathered, ElementsAre(0, 1, 2));
    }

    std::vector<int64_t> dealt(1);
    comm.scatter(comm.rank() == 0 ? std::vector<int64_t>{7, 8, 9} : std::vector<int64_t>{}, dealt, 0).wait();
    EXPECT_EQ(dealt[0], 7 + r);

    std::vector<int64_t> top{r};
    comm.reduce(top, 0, ReduceOp::kMax).wait();
    if (comm.rank() == 0) {
      EXPECT_EQ(top[0], 2);
    }
    comm.barrier().wait();
  });
}

TEST(Communicator, SendsAndReceivesCrossEachOther) {
  run_ranks(2, [](Communicator& comm) {
    int peer = 1 - comm.rank();
    std::vector<float> out(300000, static_cast<float>(comm.rank() + 1));
    std::vector<float> in(300000);
    std::vector<float> small(2);
    Pending late = comm.receive(small, peer, /*tag=*/9);
    Pending receive = comm.receive(in, peer, /*tag=*/3);
    Pending send = comm.send(out, peer, 3);
    receive.wait();
    send.wait();
    EXPECT_THAT(in, Each(static_cast<float>(peer + 1)));
    comm.send(std::vector<float>{5, 6}, peer, 9).wait();
    late.wait();
    EXPECT_THAT(small, ElementsAre(5, 6));
  });
}

TEST(Communicator, SplitsIntoGroupsInTheOrderOfKeys) {
  run_ranks(5, [](Communicator& comm) {
    int color = comm.rank() == 4 ? -1 : comm.rank() % 2;
    auto group = comm.split(color, /*key=*/-comm.rank(), "halves");
    if (color < 0) {
      EXPECT_EQ(group, nullptr);
      return;
    }
    EXPECT_EQ(group->size(), 2);
    EXPECT_EQ(group->rank(), comm.rank() < 2 ? 1 : 0);
    std::vector<int32_t> x{comm.rank()};
    group->all_reduce(x).wait();
    EXPECT_EQ(x[0], color == 0 ? 2 : 4);
  });
}

TEST(Communicator, DisagreementIsAnErrorOnEveryRankThatShowsBothSides) {
  std::atomic<int> told{0};
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& comm) {
                           std::vector<float> x(8, 1.0f);
                           std::vector<int32_t> y(8, 1);
                           Buffer data = comm.rank() == 1 ? Buffer(y) : Buffer(x);
                           try {
                             comm.all_reduce(data, ReduceOp::kSum, {.name = "loss"}).wait();
                           } catch (const CommError& error) {
                             EXPECT_THAT(error.what(),
                                         HasSubstr("rank 0 called all_reduce #1 'loss' sum of fp32 [8]"));
                             EXPECT_THAT(error.what(),
                                         HasSubstr("rank 1 called all_reduce #1 'loss' sum of int32 [8]"));
                             ++told;
                             throw;
                           }
                         }),
               CommError);
  EXPECT_EQ(told, 3);
}

TEST(Communicator, AfterAFailureEverythingFailsWithTheSameReason) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& comm) {
                           std::vector<float> x(comm.rank() == 0 ? 3 : 4);
                           std::string first = error_of([&] { comm.all_reduce(x).wait(); });
                           EXPECT_THAT(first, HasSubstr("different operations"));
                           EXPECT_EQ(error_of([&] { comm.barrier().wait(); }), first);
                           throw CommError("end");
                         }),
               CommError);
}

TEST(Communicator, ARankThatDoesNotComeEndsTheWaitAtItsDeadline) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& comm) {
                           if (comm.rank() == 1) return;
                           std::string error = error_of([&] { comm.barrier({.timeout = 0.2}).wait(); });
                           EXPECT_THAT(error, HasSubstr("barrier #1 on group 'world' (rank 0 of 2"));
                           EXPECT_THAT(error, HasSubstr("not complete after 0.2 s"));
                           throw CommError("end");
                         }),
               CommError);
}

TEST(Communicator, AfterGivingUpEverythingFailsAtOnceOnAllRanks) {
  std::atomic<int> told{0};
  Stopwatch watch;
  EXPECT_THROW(run_ranks(
                   3,
                   [&](Communicator& comm) {
                     auto group = comm.split(0, comm.rank(), "group");
                     std::vector<float> x(100000), y(3);
                     std::vector<Pending> begun;
                     begun.push_back(group->all_reduce(x));
                     begun.push_back(comm.receive(y, (comm.rank() + 1) % 3));
                     if (comm.rank() == 1) comm.abandon("it must not go on");
                     begun.push_back(comm.barrier());
                     begun.push_back(comm.receive(y, (comm.rank() + 1) % 3, 5));
                     for (size_t i = 1; i < begun.size(); ++i)  // the first may complete
                       told += error_of([&] { begun[i].wait(); }).find("rank 1 gave up: it must not go on") !=
                               std::string::npos;
                     error_of([&] { begun[0].wait(); });
                     throw CommError("end");
                   },
                   300),
               CommError);
  EXPECT_EQ(told, 3 * 3);
  EXPECT_LT(watch.seconds(), 100) << "that is not 'at once'";
}

TEST(Communicator, AnExceptionWithOperationsInFlightWaitsForNobody) {
  Stopwatch watch;
  std::string error;
  try {
    run_ranks(
        2,
        [](Communicator& comm) {
          static std::vector<float> x(100000), y(100000), z(100000);
          if (comm.rank() == 0) {
            Pending never = comm.receive(x, 1);
            Pending nor_this = comm.receive(y, 1, 5);
            throw std::runtime_error("a bug of the user's");
          }
          comm.receive(z, 0).wait();
        },
        300);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  EXPECT_EQ(error, "a bug of the user's") << "the culprit's exception, not that of its victims";
  EXPECT_LT(watch.seconds(), 100);
}

TEST(Communicator, RanksThatFailAlikeCompleteWhatTheyHaveBegun) {
  std::vector<std::vector<float>> x(2, std::vector<float>(100000, 1.0f));
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& comm) {
                           comm.all_reduce(x[static_cast<size_t>(comm.rank())]);
                           throw ConfigError("the same on all ranks");
                         }),
               ConfigError);
  EXPECT_THAT(x[0], Each(2.0f));
  EXPECT_THAT(x[1], Each(2.0f));
}

TEST(Communicator, ARankThatIsAThreadAndEndsEarlyIsNamed) {
  Stopwatch watch;
  std::atomic<int> told{0};
  EXPECT_THROW(run_ranks(
                   3,
                   [&](Communicator& comm) {
                     std::vector<float> x(3);
                     comm.all_reduce(x).wait();
                     if (comm.rank() == 2) return;
                     std::string error = error_of([&] { comm.all_reduce(x).wait(); });
                     EXPECT_THAT(error, HasSubstr("rank 2 has exited normally after 1 operations"));
                     EXPECT_THAT(error, HasSubstr("join()"));
                     ++told;
                     throw CommError("end");
                   },
                   300),
               CommError);
  EXPECT_EQ(told, 2);
  EXPECT_LT(watch.seconds(), 100);
  // A receive from it as well; and one that left after its part is nobody's trouble.
  EXPECT_THROW(run_ranks(
                   2,
                   [](Communicator& comm) {
                     std::vector<float> x(3);
                     if (comm.rank() == 0) comm.receive(x, 1).wait();
                   },
                   300),
               CommError);
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> x(3);
    comm.rank() == 0 ? comm.receive(x, 1).wait() : comm.send(x, 0).wait();
  });
}

TEST(Communicator, CommonMemoryHasTheSameSizeForAll) {
  run_ranks(3, [](Communicator& comm) {
    Memory memory = comm.allocate_common(100);
    auto* bytes = static_cast<char*>(memory.data.get());
    bytes[comm.rank()] = 'a';
    comm.barrier().wait();
    EXPECT_EQ(std::string(bytes, 4), std::string("aaa\0", 4));
    size_t asked = comm.rank() == 2 ? 7 : 8;
    std::string error = error_of([&] { memory = comm.allocate_common(asked); });
    if (comm.rank() == 2)
      EXPECT_THAT(error, HasSubstr("7 bytes on rank 2, but 8 on rank 0"));
    else
      EXPECT_EQ(error, "");
  });
}

TEST(Communicator, RefusesWhatCannotBeRight) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> x(3);
    std::vector<float> y(4);
    EXPECT_THAT(error_of([&] { comm.broadcast(x, 2); }), HasSubstr("root 2 is not a rank"));
    EXPECT_THAT(error_of([&] { comm.reduce_scatter(x, y); }), HasSubstr("must have 8"));
    EXPECT_THAT(error_of([&] { comm.all_gather(x, y); }), HasSubstr("must have 6"));
    EXPECT_THAT(error_of([&] { comm.all_to_all(x, x); }), HasSubstr("equal parts"));
    EXPECT_THAT(error_of([&] { comm.send(x, comm.rank()); }), HasSubstr("not another rank"));
    EXPECT_THAT(error_of([&] { comm.send(x, 1 - comm.rank(), 70000); }), HasSubstr("tag 70000"));
    comm.barrier().wait();  // nothing of that counted
  });
}

}  // namespace
}  // namespace yoke::comm
