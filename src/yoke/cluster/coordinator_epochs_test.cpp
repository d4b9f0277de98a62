// Epochs of an elastic job, with sessions that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "yoke/cluster/elastic_job_for_tests.h"
#include "yoke/cluster/job_contact.h"

namespace yoke::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Job = ElasticJob;

TEST(Epochs, ALossRenumbersThoseLeft) {
  Job job(4);
  EXPECT_EQ(job.sessions[2]->epoch().number, 0);
  EXPECT_TRUE(job.sessions[2]->epoch().elastic);
  job.kill(1);
  for (int seat : {0, 2, 3}) {
    wait_for(*job.failures[seat]);
    EXPECT_THAT(job.failures[seat]->report().what, HasSubstr("rank 1 was killed"));
  }
  EXPECT_TRUE(job.regroup({0, 2, 3}).empty());
  for (int seat : {0, 2, 3}) {
    EXPECT_THAT(job.seats_of(seat), ElementsAre(0, 2, 3));
    EXPECT_EQ(job.sessions[seat]->epoch().number, 1);
    EXPECT_EQ(job.sessions[seat]->epoch().losses, 1);
    EXPECT_THAT(job.sessions[seat]->epoch().cause, HasSubstr("rank 1 was killed"));
    EXPECT_FALSE(job.failures[seat]->set());
  }
  EXPECT_EQ(job.sessions[3]->epoch().rank, 2);
  EXPECT_EQ(job.sessions[0]->members()[2].address, "127.0.0.1:103");
  EXPECT_FALSE(job.coordinator->failure());
}

TEST(Epochs, ValuesOfTheLastOneAreGone) {
  Job job(3);
  job.sessions[0]->put("key", "old", Deadline::after(20));
  job.kill(2);
  EXPECT_TRUE(job.regroup({0, 1}).empty());
  EXPECT_THAT([&] { job.sessions[1]->get("key", Deadline::after(0.1)); },
              ThrowsMessage<CommError>(HasSubstr("key")));
  std::jthread other([&] { job.sessions[1]->exchange("x", "b", Deadline::after(20)); });
  EXPECT_THAT(job.sessions[0]->exchange("x", "a", Deadline::after(20)), ElementsAre("a", "b"));
}

TEST(Epochs, ASecondLossWhileRegroupingIsNoticed) {
  Job job(4);
  job.kill(1);
  std::jthread second([&] {
    wait_for(*job.failures[3]);
    job.kill(3);
  });
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  EXPECT_THAT(job.seats_of(0), ElementsAre(0, 2));
  EXPECT_EQ(job.sessions[0]->epoch().losses, 2);
}

TEST(Epochs, FewerThanTheLeastFailsForAll) {
  Job job(3, /*min=*/3);
  job.kill(1);
  std::map<int, std::string> errors = job.regroup({0, 2});
  for (int seat : {0, 2})
    EXPECT_THAT(errors[seat],
                AllOf(HasSubstr("rank 1 was killed"), HasSubstr("2 of at least 3 ranks are left")));
  ASSERT_TRUE(job.coordinator->failure());
  EXPECT_EQ(job.coordinator->failure()->rank, 1);
}

TEST(Epochs, ACauseThatStaysFailsTheJob) {
  Job job(2);
  std::map<int, std::string> errors;
  int epochs = 0;
  for (; errors.empty() && epochs < 20; ++epochs) errors = job.regroup({0, 1}, "no shared memory");
  EXPECT_LT(epochs, 20);
  for (int seat : {0, 1})
    EXPECT_THAT(errors[seat], AllOf(HasSubstr("epochs in a row"), HasSubstr("no shared memory")));
  ASSERT_TRUE(job.coordinator->failure());
}

TEST(Epochs, MayEndWithoutALossAsOftenAsStepsAreMade) {
  Job job(2);
  for (int step = 1; step <= 20; ++step) {
    job.sessions[0]->progress(/*operation=*/1, step);
    EXPECT_TRUE(job.regroup({0, 1}, "a connection broke").empty()) << step;
  }
}

TEST(Epochs, AnEndWithoutALossIsLoggedWithItsCause) {
  Job job(2);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(job.regroup({0, 1}, "rejected a frame with a wrong MAC").empty());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("epoch 1: 2 ranks, after "), HasSubstr("rejected a frame with a wrong MAC")));
}

TEST(Epochs, WhoDoesNotRegroupIsEvicted) {
  Job job(3, 1, /*regroup_timeout=*/0.3);
  job.kill(1);
  EXPECT_TRUE(job.regroup({0}).empty());
  EXPECT_THAT(job.seats_of(0), ElementsAre(0));
  wait_for(*job.failures[2]);
  std::map<int, std::string> errors = job.regroup({2});
  EXPECT_FALSE(errors[2].empty());
}

// Nobody is lost because of a report that a link is cut: the next epoch checks.
TEST(Epochs, ALinkInDoubtIsCheckedInTheNextOne) {
  Job job(3);
  FailureReport report;
  report.rank = 2;
  report.kind = "cut";
  report.what = "lost rank 2: its machine has acknowledged nothing";
  job.sessions[1]->fail(report);
  for (int seat : {0, 1, 2}) wait_for(*job.failures[seat]);
  EXPECT_TRUE(job.regroup({0, 1, 2}).empty());
  for (int seat : {0, 1, 2}) EXPECT_TRUE(job.sessions[seat]->epoch().in_doubt) << seat;
  EXPECT_EQ(job.sessions[0]->epoch().losses, 0);
  EXPECT_TRUE(job.regroup({0, 1, 2}, "").empty());
  EXPECT_FALSE(job.sessions[0]->epoch().in_doubt);
}

TEST(Epochs, OfTwoThatDoNotReachEachOtherOneIsEvicted) {
  Job job(3);
  job.sessions[0]->report_cut_links({{1, 2}}, Deadline::after(20));
  for (int seat : {0, 1, 2}) wait_for(*job.failures[seat]);
  EXPECT_THAT(job.failures[2]->report().kind, "evicted");
  EXPECT_THAT(job.failures[2]->report().what,
              AllOf(HasSubstr("evicted"), HasSubstr("rank 1 on node"), HasSubstr("cannot reach each other")));
  EXPECT_TRUE(job.regroup({0, 1}).empty());
  EXPECT_THAT(job.seats_of(0), ElementsAre(0, 1));
  EXPECT_EQ(job.sessions[0]->epoch().losses, 1);
  EXPECT_THAT(job.sessions[0]->epoch().cause, HasSubstr("rank 2 leaves"));
  EXPECT_FALSE(job.sessions[0]->epoch().in_doubt);
}

TEST(Epochs, AnEvictionThatLeavesTooFewFailsTheJobAndNamesTheLink) {
  Job job(3, /*min=*/3);
  job.sessions[0]->report_cut_links({{0, 1}}, Deadline::after(20));
  for (int seat : {0, 1, 2}) wait_for(*job.failures[seat]);
  std::map<int, std::string> errors = job.regroup({0, 2});
  for (int seat : {0, 2})
    EXPECT_THAT(errors[seat],
                AllOf(HasSubstr("cannot reach each other"), HasSubstr("2 of at least 3 ranks are left")));
}

TEST(Epochs, ALinkOfARankToItselfIsRejected) {
  Job job(2);
  EXPECT_ANY_THROW(job.sessions[0]->report_cut_links({{1, 1}}, Deadline::after(20)));
  wait_for(*job.failures[1]);
  EXPECT_THAT(job.failures[1]->report().what, HasSubstr("violated the coordinator's protocol"));
}

TEST(Epochs, ARankThatLeavesIsNoLoss) {
  Job job(3);
  job.sessions.erase(1);
  EXPECT_TRUE(job.regroup({0, 2}, "").empty());
  EXPECT_THAT(job.seats_of(2), ElementsAre(0, 2));
  EXPECT_EQ(job.sessions[0]->epoch().losses, 0);
  EXPECT_EQ(job.sessions[0]->epoch().cause, "");
}

TEST(Epochs, ARankReturnsWhenTheOthersRegroup) {
  Job job(3);
  job.kill(1);
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  job.sessions.erase(1);
  std::jthread returning([&] { job.sessions[1] = job.join(1, 2000); });
  Deadline deadline = Deadline::after(20);
  while (!(job.sessions[0]->change_wanted() && job.sessions[2]->change_wanted()) && !deadline.passed())
    std::this_thread::yield();
  EXPECT_TRUE(job.regroup({0, 2}, "").empty());
  returning.join();
  EXPECT_THAT(job.seats_of(1), ElementsAre(0, 2, 1));
  EXPECT_EQ(job.sessions[1]->epoch().rank, 2);
  EXPECT_EQ(job.sessions[1]->epoch().joins, 1);
  std::vector<std::string> heard[3];
  std::vector<std::jthread> threads;
  for (int seat = 0; seat < 3; ++seat)
    threads.emplace_back([&, seat] {
      heard[seat] = job.sessions[seat]->exchange("x", std::to_string(seat), Deadline::after(20));
    });
  threads.clear();
  for (const auto& all : heard) EXPECT_THAT(all, ElementsAre("0", "2", "1"));
  EXPECT_FALSE(job.sessions[0]->change_wanted());
  EXPECT_THAT([&] { job.join(0, 3000); }, ThrowsMessage<Error>(HasSubstr("rank 0 joined twice")));
}

// The others are not told, and stop for nobody, before it is ready.
TEST(Epochs, WhoJoinsPreparesWhileTheOthersTrainOn) {
  Job job(2);
  job.failures[2] = nullptr;
  std::atomic<bool> prepares{false}, may_go_on{false};
  std::jthread joins([&] {
    job.sessions[2] = job.join(2, 1000, [&] {
      prepares = true;
      while (!may_go_on) std::this_thread::yield();
    });
  });
  Deadline deadline = Deadline::after(20);
  while (!prepares && !deadline.passed()) std::this_thread::yield();
  std::jthread other([&] { job.sessions[1]->exchange("a step", "", Deadline::after(20)); });
  job.sessions[0]->exchange("a step", "", Deadline::after(20));
  other.join();
  EXPECT_FALSE(job.sessions[0]->change_wanted());
  may_go_on = true;
  while (!(job.sessions[0]->change_wanted() && job.sessions[1]->change_wanted()) && !deadline.passed())
    std::this_thread::yield();
  EXPECT_TRUE(job.regroup({0, 1}, "").empty());
  joins.join();
  EXPECT_THAT(job.seats_of(2), ElementsAre(0, 1, 2));
}

TEST(Epochs, WhoFailsWhileItPreparesDoesNoHarm) {
  Job job(2);
  job.failures[2] = nullptr;
  EXPECT_ANY_THROW(job.join(2, 1000, [] { throw ConfigError("no memory"); }));
  EXPECT_FALSE(job.sessions[0]->change_wanted());
  EXPECT_FALSE(job.failures[0]->set());
  EXPECT_TRUE(job.regroup({0, 1}, "").empty());
  EXPECT_THAT(job.seats_of(0), ElementsAre(0, 1));
}

TEST(Epochs, NobodyReturnsToAJobThatHasEnded) {
  Job job(2);
  job.kill(1);
  EXPECT_TRUE(job.regroup({0}).empty());
  std::string said;
  std::jthread returning([&] {
    try {
      job.join(1, 2000);
    } catch (const Error& error) {
      said = error.what();
    }
  });
  Deadline deadline = Deadline::after(20);
  while (!job.sessions[0]->change_wanted() && !deadline.passed()) std::this_thread::yield();
  job.sessions.erase(0);
  returning.join();
  EXPECT_THAT(said, HasSubstr("the job has ended"));
}

TEST(Epochs, AFixedJobDoesNotRegroup) {
  Job job(2, /*min=*/0);
  EXPECT_FALSE(job.sessions[0]->epoch().elastic);
  EXPECT_FALSE(job.regroup({0}).empty());
}

// Processes that were never part of the job ask for numbers, and join with them.
TEST(Epochs, RanksThatWereNeverThereJoin) {
  Job job(2);
  auto contact = [&] {
    return JobContact({job.coordinator->address().text(), job.ticket.job_id, 0, "integrity"},
                      job.ticket.secret, Deadline::after(20));
  };
  EXPECT_EQ(contact().take_seats(2, Deadline::after(20)), 2);
  EXPECT_EQ(contact().take_seats(1, Deadline::after(20)), 4);  // no number is given twice
  job.failures[3] = nullptr;
  std::jthread joins([&] { job.sessions[3] = job.join(3); });
  Deadline deadline = Deadline::after(20);
  while (!(job.sessions[0]->change_wanted() && job.sessions[1]->change_wanted()) && !deadline.passed())
    std::this_thread::yield();
  EXPECT_TRUE(job.regroup({0, 1}, "").empty());
  joins.join();
  EXPECT_THAT(job.seats_of(3), ElementsAre(0, 1, 3));
  EXPECT_EQ(job.sessions[0]->epoch().joins, 1);
}

TEST(Epochs, AFixedJobHasNoNumbersToGive) {
  net::JobTicket ticket;
  ticket.job_id = "fixed";
  CoordinatorOptions options;
  options.address = {"127.0.0.1", 0, ""};
  Coordinator coordinator(options, ticket);
  JobContact contact({coordinator.address().text(), "fixed", 0, "integrity"}, ticket.secret,
                     Deadline::after(20));
  EXPECT_THAT([&] { contact.take_seats(1, Deadline::after(20)); },
              ThrowsMessage<CommError>(HasSubstr("not elastic")));
}

TEST(Epochs, AJobThatHasNotFormedGivesNoNumbersYet) {
  net::JobTicket ticket;
  ticket.job_id = "forming";
  CoordinatorOptions options;
  options.address = {"127.0.0.1", 0, ""};
  options.world_size = 2;
  options.elastic_min = 1;
  Coordinator coordinator(options, ticket);
  JobContact contact({coordinator.address().text(), "forming", 0, "integrity"}, ticket.secret,
                     Deadline::after(20));
  EXPECT_EQ(contact.take_seats(1, Deadline::after(20)), -1);
}

}  // namespace
}  // namespace yoke::cluster
