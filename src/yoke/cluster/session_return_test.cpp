// Ranks that the job can do without: lost, started again, back in the running job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/session.h"

namespace yoke::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Runs {
  Runs() {
    options.address = {"127.0.0.1", 0, ""};
    options.world_size = 3;
    options.expendable = {false, true, true};
    ticket.job_id = "returning";
    coordinator = std::make_unique<Coordinator>(options, ticket);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) threads.emplace_back([this, rank] { sessions[rank] = join(rank); });
  }
  std::unique_ptr<Session> join(int rank, int pid = 1) {
    Member self{rank, "node", "machine", pid, fmt::format("127.0.0.1:{}", pid), "", 0};
    return std::make_unique<Session>(coordinator->address(), ticket, self, 3, failure, Deadline::after(20));
  }
  CoordinatorOptions options;
  net::JobTicket ticket;
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Session> sessions[3];
};

TEST(SessionReturn, ALostRankComesBackInItsNextLife) {
  Runs job;
  EXPECT_EQ(job.sessions[0]->members()[2].life, 0);
  job.sessions[0]->put("key", "value", Deadline::after(20));
  for (int life = 1; life <= 2; ++life) {
    job.sessions[2].reset();
    job.sessions[2] = job.join(2, 40 + life);
    EXPECT_EQ(job.sessions[2]->members()[2].life, life);
    EXPECT_EQ(job.sessions[2]->members()[2].pid, 40 + life);
    EXPECT_EQ(job.sessions[2]->members()[0].life, 0);
    EXPECT_EQ(job.sessions[2]->get("key", Deadline::after(20)), "value");
  }
  EXPECT_FALSE(job.failure->set());
}

TEST(SessionReturn, OneThatIsStillThereIsNotReplaced) {
  Runs job;
  EXPECT_THAT([&] { job.join(2); }, ThrowsMessage<Error>(HasSubstr("rank 2 joined twice")));
  EXPECT_THAT([&] { job.join(0); }, ThrowsMessage<Error>(HasSubstr("rank 0 joined twice")));
  job.sessions[1]->put("key", "", Deadline::after(20));
}

TEST(SessionReturn, NobodyComesBackToAJobThatEnds) {
  Runs job;
  job.sessions[2].reset();
  job.sessions[0].reset();
  EXPECT_THAT([&] { job.join(2); }, ThrowsMessage<Error>(HasSubstr("has ended or is ending")));
}

}  // namespace
}  // namespace yoke::cluster
