#include "yoke/cluster/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"

namespace yoke::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

net::JobTicket ticket() {
  net::JobTicket ticket;
  ticket.job_id = "session test";
  ticket.secret = net::Secret::from_text(std::string(64, 'b'));
  return ticket;
}

CoordinatorOptions options_for(int world_size) {
  CoordinatorOptions options;
  options.address = {"127.0.0.1", 0, ""};
  options.world_size = world_size;
  return options;
}

Member member(int rank) {
  return {rank,          "node" + std::to_string(rank), "machine", 1000 + rank,
          "127.0.0.1:1", fmt::format("RANK={}", rank)};
}

struct Job {
  explicit Job(int size, double join_timeout = 20)
      : world_size(size),
        coordinator(
            [&] {
              CoordinatorOptions options = options_for(size);
              options.join_timeout = join_timeout;
              return options;
            }(),
            ticket()),
        timeout(join_timeout) {}

  std::unique_ptr<Session> join(int rank, std::shared_ptr<Failure> failure) {
    return std::make_unique<Session>(coordinator.address(), ticket(), member(rank), world_size,
                                     std::move(failure), Deadline::after(timeout));
  }

  // Runs one thread a rank; what each throws, empty where it did not.
  std::vector<std::string> run(
      const std::vector<int>& ranks,
      const std::function<void(Session&, int, const std::shared_ptr<Failure>&)>& body) {
    std::vector<std::string> errors(ranks.size());
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          auto failure = std::make_shared<Failure>();
          auto session = join(ranks[i], failure);
          body(*session, ranks[i], failure);
        } catch (const Error& error) {
          errors[i] = error.what();
          std::lock_guard lock(mutex);
          codes.push_back(error.code());
        }
      });
    for (auto& thread : threads) thread.join();
    return errors;
  }

  int world_size;
  Coordinator coordinator;
  double timeout;
  std::mutex mutex;
  std::vector<ExitCode> codes;
};

std::vector<int> first(int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

// Bounded: a test that fails says so instead of hanging.
void wait_for(const Failure& failure) {
  pollfd news{failure.event_fd(), POLLIN, 0};
  ::poll(&news, 1, 10000);
}

TEST(Session, EveryoneGetsTheWholeListAndEndsInOrder) {
  Job job(4);
  auto errors = job.run(first(4), [](Session& session, int, const auto& failure) {
    ASSERT_EQ(session.members().size(), 4u);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(session.members()[static_cast<size_t>(i)].host, "node" + std::to_string(i));
    EXPECT_FALSE(failure->set());
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_TRUE(job.coordinator.wait_until_empty(Deadline::after(5)));
  EXPECT_EQ(job.coordinator.failure(), nullptr);
}

TEST(Session, ValuesReachThoseWhoWaitAndThoseWhoComeLater) {
  Job job(3);
  std::string binary("\0\xff\x80value", 8);
  auto errors = job.run(first(3), [&](Session& session, int rank, const auto&) {
    if (rank == 0) session.put("key", binary, Deadline::after(10));
    EXPECT_EQ(session.get("key", Deadline::after(10)), binary);
    session.put(fmt::format("done {}", rank), std::string(Session::kMaxValue, 'x'), Deadline::after(10));
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(session.get(fmt::format("done {}", i), Deadline::after(10)).size(), Session::kMaxValue);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, AValueNobodyPutsIsAnErrorAfterTheDeadline) {
  Job job(1);
  auto errors = job.run(
      first(1), [](Session& session, int, const auto&) { session.get("never", Deadline::after(0.1)); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("'never'"), HasSubstr("no answer")));
}

TEST(Session, AValueThatIsNoLongerWaitedForIsForgotten) {
  Job job(1);
  auto errors = job.run(first(1), [&](Session& session, int, const auto&) {
    for (int i = 0; i < 20; ++i)
      EXPECT_THROW(session.get(fmt::format("never {}", i), Deadline::after(0.001)), CommError);
    session.put("key", "", Deadline::after(10));  // requests are heard in order
    EXPECT_EQ(job.coordinator.holding(), (Coordinator::Holding{1, 3, 0}));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, AnExchangeGivesEverybodysValueByRank) {
  Job job(4);
  auto errors = job.run(first(4), [](Session& session, int rank, const auto&) {
    for (int turn = 0; turn < 3; ++turn) {
      auto all = session.exchange(fmt::format("turn {}", turn), fmt::format("{} of {}", turn, rank),
                                  Deadline::after(20));
      ASSERT_EQ(all.size(), 4u);
      for (int other = 0; other < 4; ++other)
        EXPECT_EQ(all[static_cast<size_t>(other)], fmt::format("{} of {}", turn, other));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// Two groups meet under the same name: keys hold the ranks' numbers, so neither reads the other's values.
TEST(Session, SomeRanksExchangeAmongThemselvesAndLeaveNothing) {
  Job job(4);
  auto errors = job.run(first(4), [](Session& session, int rank, const auto&) {
    const std::vector<int> group = rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{3, 1};
    for (int turn = 0; turn < 100; ++turn) {
      auto all = session.exchange(fmt::format("turn {}", turn), fmt::format("of {}", rank),
                                  Deadline::after(60), group);
      EXPECT_EQ(all,
                (std::vector<std::string>{fmt::format("of {}", group[0]), fmt::format("of {}", group[1])}));
    }
    EXPECT_EQ(session.exchange("alone", "own", Deadline::after(60), {rank}), std::vector<std::string>{"own"});
    session.exchange("the end", "", Deadline::after(60));
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(job.coordinator.holding(), Coordinator::Holding{});
}

TEST(Session, AnExchangeWithARankThatHasLeftFailsAtOnceAndNamesBoth) {
  for (bool leaves_first : {true, false}) {
    Job job(3);
    auto errors = job.run(first(3), [&](Session& session, int rank, const auto&) {
      session.exchange("all come to this", "", Deadline::after(60));
      if (rank == 1) {
        // The others wait already, or this one has left before they do.
        while (!leaves_first && job.coordinator.holding().waiting < 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      while (leaves_first &&
             session.who_is_behind(6, Deadline::after(5)).find("rank 1 left") == std::string::npos)
        session.progress(6, -1);
      session.exchange("not to this", "", Deadline::after(600));
    });
    EXPECT_EQ(errors[1], "");
    for (size_t rank : {0u, 2u})
      EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1 on node1 (pid 1001) has exited normally"),
                                      HasSubstr("not to this")));
  }
}

// More than the coordinator can hold: a long run meets for each of its checkpoints.
TEST(Session, ExchangesLeaveNothingInTheCoordinator) {
  constexpr int kMeetings = 300, kSmallMeetings = 500;
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto&) {
    std::string large(Session::kMaxValue / 2, static_cast<char>('a' + rank));
    for (int i = 0; i < kMeetings; ++i) session.exchange(fmt::format("{}", i), large, Deadline::after(60));
    for (int i = 0; i < kSmallMeetings; ++i)
      session.exchange(fmt::format("small {}", i), "folder", Deadline::after(60));
    // The other one may still be reading its last.
    session.exchange("the end", "", Deadline::after(60));
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(job.coordinator.holding(), Coordinator::Holding{});
}

TEST(Session, MissingRanksAreListedToEveryone) {
  Job job(4, 0.5);
  double begin = now_seconds();
  auto errors = job.run({0, 2}, [](Session&, int, const auto&) {});
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("1, 3"), HasSubstr("did not join within"))));
  EXPECT_THAT(job.codes, Each(ExitCode::kRendezvous));
  EXPECT_LT(now_seconds() - begin, 8);
}

TEST(Session, ADuplicateRankIsNamedWithBothProcesses) {
  Job job(3);
  auto errors = job.run({0, 1, 1}, [](Session&, int, const auto&) {});
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 joined twice"), HasSubstr("node1 (pid 1001, RANK=1)"))));
  EXPECT_THAT(job.codes, Each(ExitCode::kRendezvous));
}

TEST(Session, ARankOutsideOfTheWorldIsNamedWithItsVariable) {
  Job job(2);
  auto errors = job.run({0, 2}, [](Session&, int, const auto&) {});
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 2"), HasSubstr("0 to 1"), HasSubstr("RANK=2"))));
}

TEST(Session, AnotherSizeOfTheWorldIsShownWithBothSides) {
  Job job(2);
  std::vector<std::string> errors(2);
  std::vector<std::jthread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      try {
        Session session(job.coordinator.address(), ticket(), member(rank), rank == 0 ? 2 : 3,
                        std::make_shared<Failure>(), Deadline::after(10));
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("size of the world"), HasSubstr("node1 (pid 1001, RANK=1) says 3"))));
}

TEST(Session, ALateComerDoesNotDisturbAJobThatRuns) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto& failure) {
    if (rank == 0) {
      EXPECT_THROW(job.join(1, std::make_shared<Failure>()), Error);
      session.put("went on", "", Deadline::after(10));
    }
    session.get("went on", Deadline::after(10));
    EXPECT_FALSE(failure->set());
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, StrangersDoNotKeepAJobFromForming) {
  Job job(4);
  std::vector<net::Descriptor> strangers;
  std::string garbage(300, '\xff');
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(net::connect_to(job.coordinator.address(), Deadline::after(10)));
    if (i % 2 == 0)
      (void)!::send(strangers.back().get(), garbage.data(), static_cast<size_t>(i % 300), MSG_NOSIGNAL);
  }
  EXPECT_THAT(job.run(first(4), [](Session&, int, const auto&) {}), Each(""));
}

TEST(Session, WhatOneRankReportsEveryoneLearns) {
  Job job(3);
  auto errors = job.run(first(3), [&](Session& session, int rank, const auto& failure) {
    if (rank == 1) {
      FailureReport report;
      report.rank = 1;
      report.kind = "exception";
      report.what = "rank 1 ran out of memory";
      report.next = "buy more";
      session.fail(report);
    }
    wait_for(*failure);
    ASSERT_TRUE(failure->set());
    EXPECT_EQ(failure->report().what, "rank 1 ran out of memory");
    EXPECT_EQ(failure->report().host, "node1");
    EXPECT_EQ(failure->report().pid, 1001);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(job.coordinator.failure()->rank, 1);
}

TEST(Session, TheLaunchersReportReachesEveryoneAndEndsTheirWaits) {
  Job job(2);
  std::jthread launcher([&] {
    Deadline deadline = Deadline::after(10);
    while (!job.coordinator.missing().empty() && !deadline.passed()) std::this_thread::yield();
    FailureReport report;
    report.rank = 1;
    report.kind = "killed";
    report.what = "rank 1 was killed by signal 9";
    job.coordinator.report(report);
  });
  auto errors = job.run(
      first(2), [](Session& session, int, const auto&) { session.get("never", Deadline::after(30)); });
  launcher.join();
  EXPECT_THAT(errors, Each(HasSubstr("killed by signal 9")));
}

TEST(Session, ARankThatLeavesIsNoFailureUntilSomebodyWaitsForIt) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto& failure) {
    if (rank == 1) return;
    session.progress(5, 2);
    Deadline deadline = Deadline::after(10);
    std::string behind;
    while (behind.find("rank 1 left the job") == std::string::npos && !deadline.passed())
      behind = session.who_is_behind(5, Deadline::after(5));
    EXPECT_EQ(behind, "rank 1 left the job");
    EXPECT_FALSE(failure->set());
    FailureReport report;
    report.rank = 1;
    report.kind = "lost";
    report.what = "all_reduce #5: connection to rank 1 closed by the peer";
    session.fail(report);
    wait_for(*failure);
    EXPECT_THAT(failure->report().what, HasSubstr("rank 1 exited normally while rank 0 waited"));
  });
  EXPECT_THAT(errors, Each(""));
}

Wait wait_in(int64_t number, double seconds = 2) {
  return {kWorldGroup, "world", number, "all_reduce #6 'bucket 0'", "all_reduce 'bucket 0'", {0, 1}, seconds};
}

TEST(Session, AWaitForARankThatHasFinishedFailsTheJobAndNamesBoth) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto& failure) {
    if (rank == 1) return session.close_group(kWorldGroup, 2, 5);
    Deadline deadline = Deadline::after(10);
    while (session.who_is_behind(6, Deadline::after(5)) != "rank 1 left the job" && !deadline.passed())
      session.progress(6, -1);
    auto watched = session.watch([](std::vector<Wait>& waits) { waits.push_back(wait_in(6)); });
    wait_for(*failure);
    EXPECT_THAT(failure->report().what, HasSubstr("rank 1 on node1 (pid 1001) has exited normally after 5"));
    EXPECT_THAT(failure->report().what, HasSubstr("rank 0 waits for it in all_reduce #6 'bucket 0'"));
    EXPECT_EQ(failure->report().kind, "left");
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, ARankThatHasDoneItsPartMayLeaveWhileOthersAreInTheOperation) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto& failure) {
    if (rank == 1) return session.close_group(kWorldGroup, 2, 6);
    std::atomic<int> looks{0};
    auto watched = session.watch([&](std::vector<Wait>& waits) {
      waits.push_back(wait_in(6, 100));
      ++looks;
    });
    Deadline deadline = Deadline::after(10);
    while (looks < 4 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(failure->set());
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, ASlowRankIsMentionedOnceInAWhile) {
  Job job(3);
  std::atomic<int> looks{0};
  testing::internal::CaptureStderr();
  auto errors = job.run(first(3), [&](Session& session, int rank, const auto& failure) {
    std::shared_ptr<void> watched;
    if (rank != 1)
      watched = session.watch([&](std::vector<Wait>& waits) {
        waits.push_back(wait_in(6, ++looks > 4 ? 25 : 2));  // both have said by then that they are there
        waits.back().ranks = {0, 1, 2};
      });
    Deadline deadline = Deadline::after(10);
    while (looks < 12 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(failure->set());
  });
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, Each(""));
  size_t at = said.find("is still waiting for rank 1 in all_reduce 'bucket 0' (25 s)");
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("is still waiting", at + 1), std::string::npos) << said;
}

TEST(Session, WhoHasFinishedIsKnownAlsoWithoutTheCoordinator) {
  auto job = std::make_unique<Job>(2);
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  std::unique_ptr<Session> first_rank, second_rank;
  std::thread joins([&] { second_rank = job->join(1, std::make_shared<Failure>()); });
  first_rank = job->join(0, failure);
  joins.join();
  second_rank->close_group(kWorldGroup, 2, 5);
  second_rank.reset();
  job.reset();
  auto watched = first_rank->watch([](std::vector<Wait>& waits) { waits.push_back(wait_in(6)); });
  wait_for(*failure);
  EXPECT_THAT(failure->report().what, HasSubstr("rank 1 on node1 (pid 1001) has exited normally"));
  watched.reset();
}

TEST(Session, ARankIsNamedWithItsRole) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session& session, int rank, const auto& failure) {
    if (rank == 1) {
      session.take_role("parameter server 0");
      FailureReport report;
      report.rank = 1;
      report.kind = "killed";
      report.what = "rank 1 on node1 (pid 1001) was killed by signal 9 (SIGKILL)";
      EXPECT_EQ(job.coordinator.role(1), "parameter server 0");
      job.coordinator.report(report);
    }
    wait_for(*failure);
    EXPECT_EQ(failure->report().role, "parameter server 0");
    EXPECT_EQ(failure->report().what,
              "parameter server 0 (rank 1) on node1 (pid 1001) was killed by signal 9 (SIGKILL)");
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, SaysWhoIsBehind) {
  Job job(3);
  auto errors = job.run(first(3), [&](Session& session, int rank, const auto&) {
    session.progress(rank == 1 ? 16 : 17, 4);
    // A round trip carries the news.
    session.put(fmt::format("there {}", rank), "", Deadline::after(10));
    for (int i = 0; i < 3; ++i) session.get(fmt::format("there {}", i), Deadline::after(10));
    Deadline deadline = Deadline::after(10);
    std::string text;
    const std::string wanted = "rank 1 has not entered it (last was number 16)";
    while (rank != 1 && text != wanted && !deadline.passed())  // by asking, rank 1 would enter it
      text = session.who_is_behind(17, Deadline::after(5));
    EXPECT_EQ(text, rank == 1 ? "" : wanted);
    session.put(fmt::format("asked {}", rank), "", Deadline::after(10));
    for (int i = 0; i < 3; ++i) session.get(fmt::format("asked {}", i), Deadline::after(10));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Session, ACoordinatorThatEndsInOrderIsNoFailure) {
  auto job = std::make_unique<Job>(1);
  auto failure = std::make_shared<Failure>();
  auto session = job->join(0, failure);
  job.reset();
  EXPECT_THROW(session->put("key", "", Deadline::after(10)), CommError);
  EXPECT_FALSE(failure->set());
}

TEST(Session, EndingByAnExceptionIsNotEndingWell) {
  Job job(2);
  auto errors = job.run(first(2), [&](Session&, int rank, const auto& failure) {
    if (rank == 1) throw CommError("something of my own");
    wait_for(*failure);
    EXPECT_EQ(failure->report().rank, 1);
    EXPECT_THAT(failure->report().what, HasSubstr("node1 (pid 1001)"));
  });
  EXPECT_THAT(errors, ::testing::ElementsAre("", HasSubstr("of my own")));
}

TEST(Session, OtherKeysAndJobsAreRefused) {
  Job job(1);
  net::JobTicket other = ticket();
  other.secret = net::Secret::random();
  EXPECT_THROW(Session(job.coordinator.address(), other, member(0), 1, std::make_shared<Failure>(),
                       Deadline::after(10)),
               net::HandshakeRefused);
  other = ticket();
  other.job_id = "another";
  EXPECT_THROW(Session(job.coordinator.address(), other, member(0), 1, std::make_shared<Failure>(),
                       Deadline::after(10)),
               net::HandshakeRefused);
  EXPECT_EQ(job.coordinator.missing(), std::vector<int>{0});
}

}  // namespace
}  // namespace yoke::cluster
