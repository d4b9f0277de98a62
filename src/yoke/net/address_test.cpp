#include "yoke/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "yoke/base/error.h"

namespace yoke::net {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  try {
    parse_address(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Address, ReadsEveryForm) {
  EXPECT_EQ(parse_address("node1:29400"), (Address{"node1", 29400, ""}));
  EXPECT_EQ(parse_address(" 10.0.0.1:80 "), (Address{"10.0.0.1", 80, ""}));
  EXPECT_EQ(parse_address("[::1]:5"), (Address{"::1", 5, ""}));
  EXPECT_EQ(parse_address("[fe80::1%eth0]:5"), (Address{"fe80::1%eth0", 5, ""}));
  EXPECT_EQ(parse_address("::1", 7), (Address{"::1", 7, ""}));
  EXPECT_EQ(parse_address("node1", 29400), (Address{"node1", 29400, ""}));
  EXPECT_EQ(parse_address("unix:@yoke-1"), (Address{"", 0, "yoke-1"}));
}

TEST(Address, TextReadsBackAsTheSameAddress) {
  for (std::string text : {"node1:29400", "[::1]:5", "unix:@yoke-1"})
    EXPECT_EQ(parse_address(text).text(), text);
}

TEST(Address, RefusesWhatIsNoneAndSaysWhy) {
  EXPECT_THAT(error_of(""), HasSubstr("host is missing"));
  EXPECT_THAT(error_of(":80"), HasSubstr("host is missing"));
  EXPECT_THAT(error_of("node1:"), HasSubstr("port"));
  EXPECT_THAT(error_of("node1:65536"), HasSubstr("port"));
  EXPECT_THAT(error_of("node1:-1"), HasSubstr("port"));
  EXPECT_THAT(error_of("node1:8x"), HasSubstr("port"));
  EXPECT_THAT(error_of("node one:8"), HasSubstr("not a host name"));
  EXPECT_THAT(error_of("a:b:8"), HasSubstr("IPv6 address must be in []"));
  EXPECT_THAT(error_of("[::1"), HasSubstr("closing ]"));
  EXPECT_THAT(error_of("[::g]:1"), HasSubstr("not an IPv6"));
  EXPECT_THAT(error_of("[::1]80"), HasSubstr("after ]"));
  EXPECT_THAT(error_of("unix:/tmp/x"), HasSubstr("unix:@"));
  EXPECT_THAT(error_of("unix:@" + std::string(101, 'a')), HasSubstr("100 characters"));
  EXPECT_THAT(error_of(std::string(300, 'a') + ":1"), HasSubstr("255 characters"));
  EXPECT_THAT(error_of(std::string("a\nb:1")), HasSubstr("a?b"));
}

// Local addresses of all listening sockets of this machine with that port, as /proc shows them.
std::set<std::string> listeners(int port) {
  std::set<std::string> found;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream stream(file);
    std::string number, local, remote, state, rest;
    std::getline(stream, rest);
    while (stream >> number >> local >> remote >> state && std::getline(stream, rest))
      if (state == "0A" && local.substr(local.find(':') + 1) == fmt::format("{:04X}", port))
        found.insert(local.substr(0, local.find(':')));
  }
  return found;
}

TEST(Listening, HappensExactlyWhereItWasTold) {
  Descriptor socket = listen_at({"127.0.0.1", 0, ""});
  Address address = bound_address(socket.get());
  EXPECT_GT(address.port, 0);
  EXPECT_EQ(listeners(address.port), std::set<std::string>{"0100007F"});
}

TEST(Listening, OnIpv6LoopbackDoesNotOpenIpv4) {
  Descriptor socket;
  try {
    socket = listen_at({"::1", 0, ""});
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  Address address = bound_address(socket.get());
  EXPECT_EQ(listeners(address.port), std::set<std::string>{"00000000000000000000000001000000"});
  EXPECT_TRUE(connect_to(address, Deadline::after(5)));
}

TEST(Listening, SaysThatAPortIsTakenAndWhatToDo) {
  Descriptor socket = listen_at({"127.0.0.1", 0, ""});
  try {
    listen_at(bound_address(socket.get()));
    FAIL() << "listened twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRendezvous);
    EXPECT_THAT(error.what(), HasSubstr("the port is in use"));
    EXPECT_THAT(error.what(), HasSubstr("is free"));
  }
}

TEST(Listening, SaysThatAnAddressIsNotOfThisMachine) {
  try {
    listen_at({"203.0.113.7", 0, ""});
    FAIL() << "listened at somebody else's address";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not an address of this machine"));
  }
}

TEST(Calling, WaitsForOneWhoListensLate) {
  Address address;
  {
    Descriptor first = listen_at({"127.0.0.1", 0, ""});
    address = bound_address(first.get());
  }
  std::promise<void> called;
  std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Descriptor socket = listen_at(address);
    called.get_future().wait_for(std::chrono::seconds(60));
  });
  EXPECT_TRUE(connect_to(address, Deadline::after(30)));
  called.set_value();
}

TEST(Calling, NobodyAnswersHimself) {
  // A port out of those that callers are given: after enough attempts the caller's own port is the one it
  // calls.
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  if (!(range >> first >> last)) GTEST_SKIP() << "the range of callers' ports is unknown";
  Address address;
  address.host = "127.0.0.1";
  address.port = 0;
  for (int port = first; port <= last && address.port == 0; ++port) {
    Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(static_cast<uint16_t>(port));
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0)
      address.port = static_cast<uint16_t>(port);
  }
  ASSERT_NE(address.port, 0);
  for (int i = 0; i < 20'000; ++i) {
    try {
      connect_to(address, Deadline::after(0));
      FAIL() << "answered itself in attempt " << i;
    } catch (const Error&) {
      // Nobody listens there.
    }
  }
}

TEST(Calling, NamesAddressReasonAndTimeWhenNobodyAnswers) {
  Address address;
  {
    Descriptor first = listen_at({"127.0.0.1", 0, ""});
    address = bound_address(first.get());
  }
  try {
    connect_to(address, Deadline::after(0.1));
    FAIL() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRendezvous);
    EXPECT_THAT(error.what(), HasSubstr(address.text()));
    EXPECT_THAT(error.what(), HasSubstr("refused"));
  }
}

TEST(Calling, SaysThatAHostCannotBeResolved) {
  try {
    connect_to({"no-such-host.invalid", 1, ""}, Deadline::after(0.3));
    FAIL() << "resolved nonsense";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
  }
}

TEST(Calling, UnixNamesWorkAndKnowTheirUser) {
  Address address{"", 0, fmt::format("yoke-test-{}", ::getpid())};
  Descriptor listening = listen_at(address);
  EXPECT_EQ(bound_address(listening.get()), address);
  Descriptor caller = connect_to(address, Deadline::after(5));
  EXPECT_TRUE(peer_is_same_user(caller.get()));
}

TEST(LocalAddress, IsTheEndOfTheRoute) {
  EXPECT_EQ(local_address_towards({"127.0.0.1", 29400, ""}), "127.0.0.1");
  EXPECT_EQ(local_address_towards({"", 0, "x"}), "127.0.0.1");
}

}  // namespace
}  // namespace yoke::net
