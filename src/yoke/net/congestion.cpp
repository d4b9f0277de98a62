// linux/tcp.h has the minimum round trip time, netinet/tcp.h does not, and both cannot be included together.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <string_view>

#include "yoke/net/socket_options.h"

namespace yoke::net {
namespace {

constexpr unsigned kNearMicroseconds = 5000;

bool uses_bbr(int fd) {
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return false;  // a unix socket
  return std::string_view(name).starts_with("bbr");
}

bool is_near(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  bool known = length >= offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
  return known && info.tcpi_min_rtt < kNearMicroseconds;
}

}  // namespace

void suit_congestion_control(int fd) {
  if (!uses_bbr(fd) || !is_near(fd)) return;
  for (std::string_view name : {"cubic", "reno"}) {
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0)
      return;
  }
}

}  // namespace yoke::net
