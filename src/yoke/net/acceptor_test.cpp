#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "yoke/net/test_pair.h"

namespace yoke::net {
namespace {

using ::testing::HasSubstr;
using testing::ticket_of;

const Address kLoopback{"127.0.0.1", 0, ""};

TEST(Acceptor, HandsOutTheConnectionThatWasAskedFor) {
  Acceptor acceptor(kLoopback, ticket_of());
  auto second = dial(acceptor.address(), ticket_of(), {2, "data", 9, 1}, Deadline::after(10));
  auto first = dial(acceptor.address(), ticket_of(), {1, "data", 9, 0}, Deadline::after(10));
  auto taken = acceptor.take({1, "data", 9, 0}, Deadline::after(10));
  first->post_copy({}, as_bytes("hello"));
  first->flush_all(Deadline::after(10));
  FrameHeader header;
  EXPECT_EQ(taken->receive_frame(header, Deadline::after(10)).size(), 5u);
  EXPECT_EQ(acceptor.take_any("messages", Deadline::after(0)), nullptr);
  EXPECT_EQ(acceptor.take_any("data", Deadline::after(10))->peer().rank, 2);
}

TEST(Acceptor, NamesWhoDidNotCome) {
  Acceptor acceptor(kLoopback, ticket_of());
  try {
    acceptor.take({3, "data", 9, 0}, Deadline::after(0.05));
    FAIL() << "took nobody's connection";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    EXPECT_THAT(error.what(), HasSubstr("'data'"));
  }
}

TEST(Acceptor, ALaterCallOfTheSameKindReplacesTheFirst) {
  Acceptor acceptor(kLoopback, ticket_of());
  auto first = dial(acceptor.address(), ticket_of(), {1, "data"}, Deadline::after(10));
  auto again = dial(acceptor.address(), ticket_of(), {1, "data"}, Deadline::after(10));
  // The listener has both once it answers a third.
  auto mark = dial(acceptor.address(), ticket_of(), {2, "mark"}, Deadline::after(10));
  acceptor.take({2, "mark"}, Deadline::after(10));
  auto taken = acceptor.take({1, "data"}, Deadline::after(10));
  again->post_copy({}, as_bytes("x"));
  again->flush_all(Deadline::after(10));
  FrameHeader header;
  EXPECT_EQ(taken->receive_frame(header, Deadline::after(10)).size(), 1u);
}

TEST(Acceptor, WorksOverUnixAndIpv6) {
  for (Address address :
       {Address{"", 0, fmt::format("yoke-acceptor-{}", ::getpid())}, Address{"::1", 0, ""}}) {
    std::unique_ptr<Acceptor> acceptor;
    try {
      acceptor = std::make_unique<Acceptor>(address, ticket_of());
    } catch (const Error& error) {
      printf("[ skipped  ] %s\n", error.what());
      continue;
    }
    auto caller = dial(acceptor->address(), ticket_of(), {1, "data"}, Deadline::after(10));
    EXPECT_NE(acceptor->take({1, "data"}, Deadline::after(10)), nullptr);
  }
}

TEST(Acceptor, CountsThoseItTurnsAway) {
  Acceptor acceptor(kLoopback, ticket_of());
  JobTicket wrong = ticket_of();
  wrong.secret = Secret::random();
  for (int i = 0; i < 5; ++i)
    EXPECT_THROW(dial(acceptor.address(), wrong, {1, "data"}, Deadline::after(10)), HandshakeRefused);
  Deadline deadline = Deadline::after(10);
  while (acceptor.refused() < 5 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(acceptor.refused(), 5);
}

// Strangers of every kind, all at once and before the first rank calls.
TEST(Acceptor, StrangersDoNotHoldUpThoseWhoBelong) {
  Acceptor acceptor(kLoopback, ticket_of());
  std::vector<Descriptor> strangers;
  std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  std::string tls("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  std::string huge(200, '\xff');
  for (int i = 0; i < 500; ++i) {
    strangers.push_back(connect_to(acceptor.address(), Deadline::after(10)));
    const std::string* bytes[] = {nullptr, &http, &tls, &huge};
    if (const std::string* say = bytes[i % 4])
      (void)!::send(strangers.back().get(), say->data(), say->size(), MSG_NOSIGNAL);
  }
  // And one that says a byte of a real hello now and then, for as long as the others need.
  std::jthread slow([&](const std::stop_token& done) {
    Descriptor socket = connect_to(acceptor.address(), Deadline::after(10));
    while (!done.stop_requested()) {
      (void)!::send(socket.get(), "H", 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  std::vector<std::unique_ptr<Connection>> good;
  for (int rank = 0; rank < 8; ++rank)
    good.push_back(dial(acceptor.address(), ticket_of(), {rank, "data"}, Deadline::after(10)));
  for (int rank = 0; rank < 8; ++rank) EXPECT_NE(acceptor.take({rank, "data"}, Deadline::after(10)), nullptr);
}

TEST(Acceptor, EndsWhileStrangersAreStillConnected) {
  std::vector<Descriptor> strangers;
  {
    Acceptor acceptor(kLoopback, ticket_of());
    for (int i = 0; i < 10; ++i) strangers.push_back(connect_to(acceptor.address(), Deadline::after(10)));
  }
  for (const Descriptor& stranger : strangers) {
    pollfd end{stranger.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&end, 1, 10'000), 1) << "the connection was not closed";
    char byte = 0;
    EXPECT_LE(::recv(stranger.get(), &byte, 1, 0), 0);
  }
}

}  // namespace
}  // namespace yoke::net
