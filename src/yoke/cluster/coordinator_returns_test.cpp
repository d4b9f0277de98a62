// A coordinator that is gone, and the one that takes up its job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "yoke/cluster/elastic_job_for_tests.h"

namespace yoke::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void lose_coordinator(ElasticJob& job) {
  job.end_coordinator();
  for (auto& [seat, failure] : job.failures)
    if (job.sessions.contains(seat)) wait_for(*failure);
}

TEST(Returns, EveryRankComesBackWithoutALoss) {
  ElasticJob job(3);
  lose_coordinator(job);
  EXPECT_THAT(job.failures[1]->report().what, HasSubstr("is gone"));
  job.start_coordinator();
  EXPECT_TRUE(job.regroup({0, 1, 2}).empty());
  for (int seat : {0, 1, 2}) {
    EXPECT_THAT(job.seats_of(seat), ElementsAre(0, 1, 2));
    EXPECT_EQ(job.sessions[seat]->epoch().number, 1);
    EXPECT_EQ(job.sessions[seat]->epoch().losses, 0);
    EXPECT_THAT(job.sessions[seat]->epoch().cause, HasSubstr("the coordinator was lost"));
    EXPECT_FALSE(job.failures[seat]->set());
  }
  // The new one does all that the old one did.
  job.kill(1);
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  EXPECT_THAT(job.seats_of(2), ElementsAre(0, 2));
  EXPECT_EQ(job.sessions[0]->epoch().losses, 1);
}

TEST(Returns, ItMayBeThereAgainLater) {
  ElasticJob job(2);
  lose_coordinator(job);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    job.start_coordinator();
  });
  EXPECT_TRUE(job.regroup({0, 1}).empty());
  EXPECT_THAT(job.seats_of(1), ElementsAre(0, 1));
}

TEST(Returns, WhoDoesNotReturnIsLost) {
  ElasticJob job(3);
  job.options.return_timeout = 0.2;
  lose_coordinator(job);
  job.sessions.erase(1);
  job.start_coordinator();
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  EXPECT_THAT(job.seats_of(0), ElementsAre(0, 2));
  EXPECT_EQ(job.sessions[0]->epoch().losses, 1);
}

TEST(Returns, WhoReturnsLateJoins) {
  ElasticJob job(3);
  job.options.return_timeout = 0.2;
  lose_coordinator(job);
  job.start_coordinator();
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  std::jthread late([&] { EXPECT_TRUE(job.regroup({1}).empty()); });
  Deadline deadline = Deadline::after(20);
  while (!(job.sessions[0]->change_wanted() && job.sessions[2]->change_wanted()) && !deadline.passed())
    std::this_thread::yield();
  EXPECT_TRUE(job.regroup({0, 2}, "").empty());
  late.join();
  EXPECT_THAT(job.seats_of(1), ElementsAre(0, 2, 1));
  EXPECT_EQ(job.sessions[1]->epoch().rank, 2);
}

TEST(Returns, ARankThatIsStartedMeanwhileJoinsTheRunningJob) {
  ElasticJob job(3);
  job.kill(1);
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  job.sessions.erase(1);
  lose_coordinator(job);
  job.start_coordinator();
  std::jthread fresh([&] { job.sessions[1] = job.join(1, 2000); });
  Deadline deadline = Deadline::after(20);
  while (!job.coordinator->has_joined(1) && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(job.regroup({0, 2}).empty());
  fresh.join();
  EXPECT_THAT(job.seats_of(1), ElementsAre(0, 2, 1));
  EXPECT_EQ(job.sessions[1]->epoch().number, 2);
}

TEST(Returns, ANewProcessTakesTheSeatOfOneThatDiedWithTheCoordinator) {
  for (bool first : {true, false}) {
    ElasticJob job(3);
    lose_coordinator(job);
    job.sessions.erase(0);
    job.start_coordinator();
    std::jthread fresh;
    auto start = [&] { fresh = std::jthread([&] { job.sessions[0] = job.join(0, 2000); }); };
    auto joined = [&] {
      Deadline deadline = Deadline::after(20);
      while (!job.coordinator->has_joined(0) && !deadline.passed()) std::this_thread::yield();
    };
    if (first) start(), joined();
    std::jthread others([&] { EXPECT_TRUE(job.regroup({1, 2}).empty()); });
    if (!first) start();
    others.join();
    fresh.join();
    if (first) {
      EXPECT_THAT(job.seats_of(0), ElementsAre(1, 2, 0));
    }
    EXPECT_EQ(job.sessions[1]->epoch().losses, 1);
  }
}

TEST(Returns, TooFewReturn) {
  ElasticJob job(3, /*min=*/3);
  job.options.return_timeout = 0.2;
  lose_coordinator(job);
  job.sessions.erase(2);
  job.start_coordinator();
  std::map<int, std::string> errors = job.regroup({0, 1});
  for (int seat : {0, 1}) EXPECT_THAT(errors[seat], HasSubstr("2 of at least 3 ranks are left"));
}

TEST(Returns, NoneIsWaitedForForEver) {
  ElasticJob job(2);
  lose_coordinator(job);
  std::map<int, std::string> errors = job.regroup({0, 1}, "an error", Deadline::after(0.2));
  for (int seat : {0, 1}) EXPECT_THAT(errors[seat], HasSubstr("none took its place within"));
}

TEST(Returns, ItMayBeLostAgainAndAgain) {
  ElasticJob job(2);
  for (int round = 1; round <= 3; ++round) {
    lose_coordinator(job);
    job.start_coordinator();
    EXPECT_TRUE(job.regroup({0, 1}).empty());
    EXPECT_EQ(job.sessions[0]->epoch().number, round);
  }
}

TEST(Returns, AnotherProcessDoesNotTakeASeat) {
  ElasticJob job(2);
  lose_coordinator(job);
  job.start_coordinator();
  EXPECT_TRUE(job.regroup({0, 1}).empty());
  EXPECT_THAT([&] { job.join(1, 3000); }, ThrowsMessage<Error>(HasSubstr("rank 1 joined twice")));
}

}  // namespace
}  // namespace yoke::cluster
