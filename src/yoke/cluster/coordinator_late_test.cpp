// Ranks that join a running job under the next number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/session.h"

namespace yoke::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct GrowingJob {
  // `known`: whether the coordinator knows the job from its options; else its ranks say what it is.
  explicit GrowingJob(int late_ranks, bool known = true) {
    options.address = {"127.0.0.1", 0, ""};
    options.world_size = 2;
    (known ? options.expendable : traits.expendable) = {false, true};
    (known ? options.late_ranks : traits.late_ranks) = late_ranks;
    ticket.job_id = "growing";
    coordinator = std::make_unique<Coordinator>(options, ticket);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([this, rank] { sessions[rank] = join(rank, 2); });
  }
  std::unique_ptr<Session> join(int rank, int world_size) {
    Member self{rank, "node", "machine", 1, "127.0.0.1:1", "", 0};
    return std::make_unique<Session>(coordinator->address(), ticket, self, world_size, failure,
                                     Deadline::after(20), traits);
  }
  // Rank 1 ends with an exception.
  void crash() try {
    const std::unique_ptr<Session> ends = std::move(sessions[1]);
    throw std::runtime_error("a crash");
  } catch (const std::runtime_error&) {
  }
  JobContact::Seat seat() const {
    JobContact contact({coordinator->address().text(), ticket.job_id, 0, "integrity"}, ticket.secret,
                       Deadline::after(20));
    return contact.seat(Deadline::after(20));
  }
  CoordinatorOptions options;
  JobTraits traits;
  net::JobTicket ticket;
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Session> sessions[2];
};

TEST(LateRanks, JoinUnderTheNextNumberAndKnowTheOthers) {
  GrowingJob job(2);
  job.sessions[0]->put("key", "value", Deadline::after(20));
  for (int rank = 2; rank < 4; ++rank) {
    EXPECT_EQ(job.seat().rank, rank);
    EXPECT_EQ(job.seat().at_start, 2);
    auto late = job.join(rank, rank + 1);
    EXPECT_EQ(late->members().size(), static_cast<size_t>(rank + 1));
    EXPECT_EQ(late->members().back().life, 1);
    EXPECT_EQ(late->get("key", Deadline::after(20)), "value");
  }
  EXPECT_THAT([&] { job.seat(); }, ThrowsMessage<CommError>(HasSubstr("all 2 places")));
  EXPECT_FALSE(job.failure->set()) << "the loss of a rank that joined late ends nothing";
}

TEST(LateRanks, ARankThatReturnsHearsOfThem) {
  GrowingJob job(1);
  auto late = job.join(2, 3);
  job.sessions[1].reset();
  job.sessions[1] = job.join(1, 2);
  EXPECT_EQ(job.sessions[1]->members().size(), 3U);
}

TEST(LateRanks, AreRefusedWithTheReason) {
  GrowingJob fixed(0);
  EXPECT_THAT([&] { fixed.seat(); }, ThrowsMessage<CommError>(HasSubstr("no place for another rank")));
  EXPECT_THROW(fixed.join(2, 3), Error);
  GrowingJob job(4);
  EXPECT_THROW(job.join(5, 6), Error) << "not the next number";
  auto late = job.join(2, 3);
  EXPECT_THROW(job.join(2, 3), Error) << "the number of another";
  job.sessions[0].reset();
  EXPECT_THAT([&] { job.seat(); }, ThrowsMessage<CommError>(HasSubstr("has ended or is ending")));
}

// `yoke run` starts any program: what it is, its ranks say when they join.
TEST(JobTraits, OfTheRanksHoldWhereTheCoordinatorKnowsNone) {
  GrowingJob job(1, /*known=*/false);
  EXPECT_TRUE(job.coordinator->expendable(1));
  EXPECT_FALSE(job.coordinator->expendable(0));
  EXPECT_EQ(job.seat().rank, 2);
  job.crash();
  auto late = job.join(2, 3);
  EXPECT_EQ(late->members().size(), 3U);
  EXPECT_FALSE(job.failure->set()) << "the others continue without rank 1";
}

}  // namespace
}  // namespace yoke::cluster
