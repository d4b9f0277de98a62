#include "yoke/net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/net/test_pair.h"

namespace yoke::net {
namespace {

using ::testing::HasSubstr;
using testing::shake_hands;
using testing::ticket_of;

TEST(Handshake, ConnectsThoseWhoHoldTheSameTicket) {
  for (auto protection : {Protection::kIntegrity, Protection::kEncrypted, Protection::kNone}) {
    auto pair = shake_hands(ticket_of(protection), ticket_of(protection), {2, "data", 77, 5});
    ASSERT_TRUE(pair.caller) << pair.caller_error;
    ASSERT_TRUE(pair.listener) << pair.listener_error;
    EXPECT_EQ(pair.listener->peer().rank, 2);
    EXPECT_EQ(pair.listener->peer().purpose, "data");
    EXPECT_EQ(pair.listener->peer().group, 77u);
    EXPECT_EQ(pair.listener->peer().lane, 5u);
    EXPECT_THAT(pair.listener->peer_text(), HasSubstr("rank 2"));
  }
}

// The caller gets the same words whatever is wrong; only the listener's log knows more.
void expect_refused(const JobTicket& caller, const JobTicket& listener, const std::string& reason,
                    Introduction self = {4, "test"}) {
  auto pair = shake_hands(caller, listener, self);
  EXPECT_FALSE(pair.caller);
  EXPECT_FALSE(pair.listener);
  EXPECT_THAT(pair.listener_error, HasSubstr(reason));
  EXPECT_THAT(pair.listener_error, HasSubstr("rank 4"));
  EXPECT_THAT(pair.caller_error, HasSubstr("refused"));
  EXPECT_THAT(pair.caller_error, HasSubstr("another key, or belongs to another job"));
}

TEST(Handshake, RefusesAnotherKey) {
  JobTicket other = ticket_of();
  other.secret = Secret::random();
  expect_refused(other, ticket_of(), "does not have the job's key");
}

TEST(Handshake, RefusesAnotherJobWithTheSameKey) {
  JobTicket other = ticket_of();
  other.job_id = "other job";
  expect_refused(other, ticket_of(), "another job");
}

TEST(Handshake, RefusesAnotherGeneration) {
  JobTicket other = ticket_of();
  other.generation = 2;
  expect_refused(other, ticket_of(), "generation 2");
}

TEST(Handshake, RefusesADowngrade) {
  expect_refused(ticket_of(Protection::kNone), ticket_of(Protection::kIntegrity), "protection 'none'");
  expect_refused(ticket_of(Protection::kNone), ticket_of(Protection::kEncrypted), "protection 'none'");
  expect_refused(ticket_of(Protection::kIntegrity), ticket_of(Protection::kEncrypted),
                 "protection 'integrity'");
  expect_refused(ticket_of(Protection::kIntegrity), ticket_of(Protection::kNone), "protection 'integrity'");
}

TEST(Handshake, RefusesACallMeantForAnotherRank) {
  JobTicket third = ticket_of();
  third.rank = 3;
  expect_refused(ticket_of(), third, "wants to reach rank 1", {4, "test", 0, 0, 1});
  EXPECT_TRUE(shake_hands(ticket_of(), third, {4, "test", 0, 0, 3}).caller);
  EXPECT_TRUE(shake_hands(ticket_of(), third, {4, "test"}).caller);
}

TEST(Handshake, CallerRefusesAListenerWithoutTheKey) {
  // An impostor that says yes to everybody.
  auto [near, far] = testing::socket_pair();
  std::jthread impostor([far_fd = far.get()] {
    auto challenge = handshake::make_challenge();
    std::vector<std::byte> sink(handshake::kHelloBytes + handshake::kProofBytes);
    size_t got = 0;
    bool challenged = false;
    Deadline deadline = Deadline::after(5);
    while (got < sink.size() && !deadline.passed()) {
      ssize_t n = ::recv(far_fd, sink.data() + got, sink.size() - got, MSG_DONTWAIT);
      if (n > 0) got += static_cast<size_t>(n);
      if (got >= handshake::kHelloBytes && !challenged) {
        ::send(far_fd, challenge.data(), challenge.size(), MSG_NOSIGNAL);
        challenged = true;
      }
      std::this_thread::yield();
    }
    std::vector<std::byte> verdict(handshake::kVerdictBytes);
    verdict[0] = handshake::kAccepted;
    ::send(far_fd, verdict.data(), verdict.size(), MSG_NOSIGNAL);
  });
  try {
    introduce(std::move(near), ticket_of(), {0, "test"}, Deadline::after(5));
    ADD_FAILURE() << "believed an impostor";
  } catch (const HandshakeRefused& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not have the key"));
  }
  impostor.join();
}

TEST(Handshake, ARecordedProofDoesNotWorkAgain) {
  JobTicket ticket = ticket_of();
  auto hello = handshake::make_hello(ticket, {0, "test"});
  auto first = handshake::make_challenge();
  auto second = handshake::make_challenge();
  EXPECT_NE(handshake::caller_proof(ticket, hello, first), handshake::caller_proof(ticket, hello, second));
  EXPECT_NE(handshake::caller_proof(ticket, hello, first), handshake::listener_proof(ticket, hello, first));
}

// What a stranger gets to see for his bytes.
std::string answer_to(const std::vector<std::byte>& bytes) {
  auto [near, far] = testing::socket_pair();
  PendingHandshake pending(std::move(far), ticket_of());
  (void)!::write(near.get(), bytes.data(), bytes.size());
  auto state = pending.advance();
  EXPECT_NE(state, PendingHandshake::State::kDone);
  char answer[256];
  ssize_t got = ::recv(near.get(), answer, sizeof answer, MSG_DONTWAIT);
  return got > 0 ? std::string(answer, static_cast<size_t>(got)) : "";
}

TEST(Handshake, StrangersGetOneByte) {
  std::string http = "GET / HTTP/1.1\r\nHost: " + std::string(200, 'x') + "\r\n\r\n";
  auto bytes = as_bytes(http);
  EXPECT_EQ(answer_to({bytes.begin(), bytes.end()}), std::string(1, '\0'));
  EXPECT_EQ(answer_to(std::vector<std::byte>(4096, std::byte{0xff})), std::string(1, '\0'));
  EXPECT_EQ(answer_to(std::vector<std::byte>(2)), "");
}

TEST(Handshake, BothSidesSayWhenVersionsDiffer) {
  auto hello = handshake::make_hello(ticket_of(), {0, "test"});
  hello[4] = std::byte{2};
  std::string why;
  EXPECT_FALSE(handshake::read_hello(hello, why));
  EXPECT_THAT(why, HasSubstr("version 2"));
  auto challenge = handshake::make_challenge();
  challenge[4] = std::byte{2};
  EXPECT_THAT(handshake::check_challenge(challenge), HasSubstr("version 2"));
  EXPECT_EQ(answer_to({hello.begin(), hello.end()}).size(), handshake::kChallengeBytes + 1);
}

TEST(Handshake, GivesUpOnAListenerThatSaysNothing) {
  auto [near, far] = testing::socket_pair();
  try {
    introduce(std::move(near), ticket_of(), {0, "test"}, Deadline::after(0.1));
    FAIL() << "shook hands with nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRendezvous);
    EXPECT_THAT(error.what(), HasSubstr("no answer within"));
  }
}

}  // namespace
}  // namespace yoke::net
