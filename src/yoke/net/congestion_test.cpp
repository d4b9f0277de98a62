#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

#include "yoke/net/address.h"
#include "yoke/net/socket_options.h"

namespace yoke::net {
namespace {

std::string congestion_control(int fd) {
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 ? name : "none";
}

bool choose(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

Descriptor call(const Descriptor& listener) {
  return connect_to(bound_address(listener.get()), Deadline::after(10));
}

TEST(CongestionControl, NearPeersAreNotLeftToBbr) {
  Descriptor listener = listen_at(Address{"127.0.0.1", 0, ""});
  Descriptor socket = call(listener);
  if (!choose(socket.get(), "bbr")) GTEST_SKIP() << "this kernel has no bbr, or does not let us choose it";
  suit_congestion_control(socket.get());
  std::string now = congestion_control(socket.get());
  EXPECT_TRUE(now == "cubic" || now == "reno") << now;
}

TEST(CongestionControl, OthersStayAsTheyAre) {
  Descriptor listener = listen_at(Address{"127.0.0.1", 0, ""});
  Descriptor socket = call(listener);
  ASSERT_TRUE(choose(socket.get(), "reno"));
  suit_congestion_control(socket.get());
  EXPECT_EQ(congestion_control(socket.get()), "reno");
}

TEST(CongestionControl, UnixSocketsHaveNone) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  suit_congestion_control(socket.get());
  EXPECT_EQ(congestion_control(socket.get()), "none");
}

}  // namespace
}  // namespace yoke::net
