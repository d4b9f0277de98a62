#include "yoke/cluster/job_contact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"

namespace yoke::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A job of one rank that can be asked.
struct AskedJob {
  AskedJob() {
    ticket.job_id = fmt::format("asked-{}", ::getpid());
    CoordinatorOptions options;
    options.address = {"127.0.0.1", 0, ""};
    coordinator = std::make_unique<Coordinator>(options, ticket);
    Member member{0, "here", "machine", ::getpid(), "127.0.0.1:1", "RANK=0"};
    session = std::make_unique<Session>(coordinator->address(), ticket, member, 1,
                                        std::make_shared<Failure>(), Deadline::after(20));
  }
  JobAddress address() const { return {coordinator->address().text(), ticket.job_id, 0, "integrity"}; }
  JobContact contact() const { return {address(), ticket.secret, Deadline::after(20)}; }

  net::JobTicket ticket;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Session> session;
};

TEST(JobContact, ARankAnswersQuestionsOfOutsiders) {
  AskedJob job;
  job.session->take_role("parameter server 0");
  auto answers = job.session->answer_questions(
      [](const std::string& question, const Session::Answer& answer) { answer(question + "!"); });
  JobContact contact = job.contact();
  ASSERT_EQ(contact.ranks(Deadline::after(20)).size(), 1U);
  EXPECT_EQ(contact.ranks(Deadline::after(20))[0].member.role, "parameter server 0");
  EXPECT_FALSE(contact.ranks(Deadline::after(20))[0].ended);
  EXPECT_EQ(contact.ask(0, "how are you", Deadline::after(20)), "how are you!");
  EXPECT_EQ(contact.ask(0, std::string(100'000, 'x'), Deadline::after(20)).size(), 100'001U);
}

TEST(JobContact, QuestionsThatCannotBeAnsweredAreRefusedWithTheReason) {
  AskedJob job;
  JobContact contact = job.contact();
  auto ask = [&](int rank) { return [&contact, rank] { contact.ask(rank, "?", Deadline::after(20)); }; };
  EXPECT_THAT(ask(0), ThrowsMessage<CommError>(HasSubstr("answers no questions")));
  EXPECT_THAT(ask(7), ThrowsMessage<CommError>(HasSubstr("rank 7 is not in the job")));
  auto answers = job.session->answer_questions(
      [](const std::string&, const Session::Answer&) { throw CommError("I do not know"); });
  EXPECT_THAT(ask(0), ThrowsMessage<CommError>(HasSubstr("I do not know")));
}

TEST(JobContact, ARankThatHasLeftIsAnErrorAtOnce) {
  AskedJob job;
  JobContact contact = job.contact();
  job.session.reset();
  auto ask = [&] { contact.ask(0, "?", Deadline::after(20)); };
  EXPECT_THAT(ask, ThrowsMessage<CommError>(HasSubstr("rank 0 is not in the job")));
  EXPECT_TRUE(contact.ranks(Deadline::after(20))[0].ended);
}

TEST(JobContact, ABeaconIsThereWhileTheJobRuns) {
  AskedJob job;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("yoke-beacon-{}", ::getpid());
  auto find = [&] { JobContact::find(folder, Deadline::after(20)); };
  EXPECT_THAT(find, ThrowsMessage<ConfigError>(HasSubstr("no job runs there")));
  {
    JobBeacon beacon(folder / kContactFile, job.address(), job.ticket.secret);
    EXPECT_EQ(JobContact::find(folder, Deadline::after(20)).ranks(Deadline::after(20)).size(), 1U);
  }
  EXPECT_THAT(find, ThrowsMessage<ConfigError>(HasSubstr("no job runs there")));
  std::ofstream(folder / kContactFile) << to_text(job.address());
  auto find_soon = [&] { JobContact::find(folder, Deadline::after(0.2)); };
  EXPECT_THAT(find_soon, ThrowsMessage<ConfigError>(HasSubstr("has ended")));
  std::filesystem::remove_all(folder);
}

TEST(JobContact, OtherFilesAreRefused) {
  const JobAddress address{"127.0.0.1:4711", "a job", 3, "encrypted"};
  EXPECT_EQ(parse_job_address(to_text(address)), address);
  for (const char* text :
       {"", "{}", "[1]", "{\"endpoint\": 3}",
        R"({"endpoint": "x:1", "job_id": "j", "generation": 0, "protection": "none at all"})"})
    EXPECT_THROW(parse_job_address(text), ConfigError) << text;
}

}  // namespace
}  // namespace yoke::cluster
