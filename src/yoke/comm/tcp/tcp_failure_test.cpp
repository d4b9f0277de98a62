#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "yoke/base/clock.h"
#include "yoke/comm/tcp/test_tcp_ranks.h"

namespace yoke::comm::tcp {
namespace {

using plan::Algorithm;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What `body` throws as CommError; empty when nothing.
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.what();
  }
  return {};
}

// Every rank calls what `ask` makes of it; returns their errors, or "mismatch: …". As the queue does, the
// first error becomes the failure of the job, which ends the waits of those who saw nothing themselves.
std::vector<std::string> errors_of_all(int size, const std::function<void(TestRank&)>& ask) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  TcpSetup like;
  like.failure = std::make_shared<cluster::Failure>();
  TcpRanks(size, like).run([&](TestRank& rank) {
    std::string& text = errors[static_cast<size_t>(rank.rank)];
    try {
      ask(rank);
    } catch (const MismatchError& error) {
      text = std::string("mismatch: ") + error.what();
    } catch (const CommError& error) {
      text = error.what();
    }
    if (text.empty()) return;
    cluster::FailureReport report;
    report.what = text;
    like.failure->raise(report);
  });
  return errors;
}

int mismatches(const std::vector<std::string>& errors) {
  return static_cast<int>(std::count_if(errors.begin(), errors.end(), [](const std::string& text) {
    return text.rfind("mismatch: ", 0) == 0;
  }));
}

TEST(TcpMismatch, AnotherTypeIsSeenBeforeDataIsUsed) {
  auto errors = errors_of_all(3, [](TestRank& rank) {
    std::vector<float> floats(1000, 1);
    std::vector<int32_t> integers(1000, 1);
    rank.run(rank.rank == 1 ? rank.check.all_reduce(integers, ReduceOp::kSum)
                            : rank.check.all_reduce(floats, ReduceOp::kSum));
  });
  EXPECT_GE(mismatches(errors), 1);
  for (const auto& error : errors) EXPECT_NE(error, "");
  auto told =
      std::find_if(errors.begin(), errors.end(), [](auto& text) { return text.rfind("mismatch", 0) == 0; });
  EXPECT_THAT(*told, AllOf(HasSubstr("rank 1 called all_reduce #1 sum of int32"), HasSubstr("of fp32")));
}

TEST(TcpMismatch, AnotherShapeOfEqualSizeIsSeen) {
  auto errors = errors_of_all(2, [](TestRank& rank) {
    std::vector<float> data(1'000'000, 1);
    Operation operation = rank.check.all_reduce(data, ReduceOp::kSum);
    std::vector<int64_t> shape{1000, 1000}, other{500, 2000};
    operation.descriptor.set_shape(rank.rank == 0 ? shape : other);
    rank.run(operation);
  });
  EXPECT_GE(mismatches(errors), 1);
}

TEST(TcpMismatch, SwappedOrderIsSeenByName) {
  auto errors = errors_of_all(2, [](TestRank& rank) {
    std::vector<float> data(100, 1);
    rank.run(rank.check.all_reduce(data, ReduceOp::kSum), {}, rank.rank == 0 ? "a" : "b");
    rank.run(rank.check.all_reduce(data, ReduceOp::kSum), {}, rank.rank == 0 ? "b" : "a");
  });
  EXPECT_EQ(mismatches(errors), 2);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0 called all_reduce #1 'a'"),
                               HasSubstr("rank 1 called all_reduce #1 'b'")));
}

TEST(TcpMismatch, AnotherOperationIsSeen) {
  auto errors = errors_of_all(4, [](TestRank& rank) {
    std::vector<float> data(100, 1);
    rank.run(rank.rank == 2 ? rank.check.broadcast(data, 0) : rank.check.all_reduce(data, ReduceOp::kSum));
    rank.run(rank.check.barrier());
  });
  EXPECT_GE(mismatches(errors), 1);
}

TEST(TcpMismatch, ASkippedOperationIsSeen) {
  auto errors = errors_of_all(3, [](TestRank& rank) {
    std::vector<float> data(100, 1);
    if (rank.rank != 1) rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
    rank.run(rank.check.barrier());
  });
  EXPECT_GE(mismatches(errors), 1);
}

TEST(TcpMismatch, BroadcastsFromTwoRootsAreSeenAtTheNextOperation) {
  auto errors = errors_of_all(2, [](TestRank& rank) {
    std::vector<float> data(100, 1);
    rank.run(rank.check.broadcast(data, rank.rank));
    rank.run(rank.check.barrier());
  });
  EXPECT_GE(mismatches(errors), 1);
  EXPECT_THAT(errors[0] + errors[1], AllOf(HasSubstr("#1"), HasSubstr("root 0"), HasSubstr("root 1")));
}

TEST(TcpMismatch, AnotherAlgorithmIsSeen) {
  auto errors = errors_of_all(4, [](TestRank& rank) {
    std::vector<float> data(100'000, 1);
    rank.run(rank.check.all_reduce(data, ReduceOp::kSum),
             rank.rank == 0 ? Algorithm::kRing : Algorithm::kDirect);
  });
  EXPECT_GE(mismatches(errors), 1);
}

TEST(TcpMismatch, AnAlgorithmWithoutSuchAFormIsAConfigError) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<double> data(2), out(2);
    EXPECT_THROW(rank.run(rank.check.all_to_all(data, out), Algorithm::kTree), ConfigError);
  });
}

TEST(TcpFailure, ARankThatLeavesInTheMiddleIsNamed) {
  auto errors = errors_of_all(3, [](TestRank& rank) {
    std::vector<float> data(4'000'000, 1);
    rank.run(rank.check.barrier());
    if (rank.rank == 1) {
      rank.backend.reset();
      return;
    }
    rank.run(rank.check.all_reduce(data, ReduceOp::kSum), Algorithm::kDirect);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("lost rank 1 on host1"), HasSubstr("all_reduce #2")));
  EXPECT_EQ(errors[1], "");
  // It sees the end itself, or hears of it from rank 0.
  EXPECT_THAT(errors[2], HasSubstr("lost rank 1 on host1"));
}

TEST(TcpFailure, AWaitEndsAtItsDeadlineAndNamesWhoIsMissing) {
  std::atomic<bool> over{false};
  auto errors = errors_of_all(2, [&](TestRank& rank) {
    rank.run(rank.check.barrier());
    if (rank.rank == 1) {
      Deadline limit = Deadline::after(10);
      while (!over && !limit.passed()) std::this_thread::yield();
      return;
    }
    rank.timeout = 0.2;
    std::vector<float> data(100, 1);
    try {
      rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("not done after"), HasSubstr("rank 1 on host1")));
}

TEST(TcpFailure, TheJobsFailureEndsAWaitAtOnce) {
  double waited = 100;
  std::atomic<bool> over{false};
  auto errors = errors_of_all(2, [&](TestRank& rank) {
    rank.run(rank.check.barrier());
    if (rank.rank == 1) {
      Deadline limit = Deadline::after(10);
      while (!over && !limit.passed()) std::this_thread::yield();
      return;
    }
    std::jthread news([&] {
      cluster::FailureReport report;
      report.what = "rank 1 on host1 (pid 4711) was killed by signal 9";
      rank.failure->raise(report);
    });
    double begin = now_seconds();
    std::string error = error_of([&] {
      std::vector<float> data(100, 1);
      rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
    });
    waited = now_seconds() - begin;
    news.join();
    over = true;
    throw CommError("{}", error);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 on host1 (pid 4711) was killed by signal 9"));
  EXPECT_LT(waited, 5);
}

TEST(TcpFailure, AGroupThatFailedSaysSoAgain) {
  TcpRanks(2).run([](TestRank& rank) {
    rank.run(rank.check.barrier());
    if (rank.rank == 1) return;
    std::string first = error_of([&] { rank.run(rank.check.barrier()); });
    EXPECT_THAT(first, HasSubstr("lost rank 1"));
    EXPECT_EQ(error_of([&] { rank.run(rank.check.barrier()); }), first);
  });
}

// Ranks as processes: the parent is rank 0, the child rank 1. Forked before there are threads.
TEST(TcpFailure, AKilledProcessIsNoticedAtOnce) {
  int addresses[2][2];
  ASSERT_EQ(pipe(addresses[0]), 0);
  ASSERT_EQ(pipe(addresses[1]), 0);
  net::JobTicket ticket;
  ticket.job_id = "fork";
  pid_t child = fork();
  ASSERT_GE(child, 0);
  auto play = [&](int rank) {
    net::Acceptor acceptor(net::parse_address("127.0.0.1:0"), ticket);
    TcpSetup setup;
    setup.rank = rank;
    setup.size = 2;
    setup.ticket = ticket;
    setup.acceptor = &acceptor;
    setup.failure = std::make_shared<cluster::Failure>();
    char own[64] = {}, other[64] = {};
    std::string text = acceptor.address().text();
    text.copy(own, sizeof(own) - 1);
    if (write(addresses[rank][1], own, sizeof(own)) != sizeof(own)) throw std::runtime_error("pipe");
    if (read(addresses[1 - rank][0], other, sizeof(other)) != sizeof(other)) throw std::runtime_error("pipe");
    setup.members = {{0, "host0", "", 0, rank == 0 ? own : other},
                     {1, "host1", "", 0, rank == 0 ? other : own}};
    TestRank self{rank, 2, make_tcp_backend(setup), setup.failure, RequestChecker{rank, 2}};
    std::vector<float> data(1'000'000, 1);
    for (int i = 0; i < 100'000; ++i) {
      if (rank == 0 && i == 5) kill(child, SIGKILL);
      self.run(self.check.all_reduce(data, ReduceOp::kMean));
    }
  };
  if (child == 0) {
    alarm(60);
    try {
      play(1);
    } catch (...) {
    }
    _exit(0);
  }
  double begin = now_seconds();
  std::string error = error_of([&] { play(0); });
  EXPECT_THAT(error, HasSubstr("lost rank 1 on host1"));
  EXPECT_LT(now_seconds() - begin, 10);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  for (auto& one : addresses) {
    close(one[0]);
    close(one[1]);
  }
}

}  // namespace
}  // namespace yoke::comm::tcp
