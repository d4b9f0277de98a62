// The listening side of the handshake, fed with any bytes in any pieces: it never says yes, never waits, and
// answers at most with its challenge and one byte.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "yoke/net/handshake.h"
#include "yoke/net/test_pair.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::net;
  if (size == 0) return 0;
  const size_t piece = data[0] + 1u;
  static const JobTicket ticket = testing::ticket_of();
  auto [near, far] = testing::socket_pair();
  PendingHandshake pending(std::move(far), ticket);
  auto state = PendingHandshake::State::kWaiting;
  for (size_t at = 1; at < size && state == PendingHandshake::State::kWaiting; at += piece) {
    if (::send(near.get(), data + at, std::min(piece, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    state = pending.advance();
  }
  if (state == PendingHandshake::State::kDone) std::abort();
  if (state == PendingHandshake::State::kRefused && pending.refusal().empty()) std::abort();
  std::byte answer[256];
  ssize_t got = ::recv(near.get(), answer, sizeof answer, MSG_DONTWAIT);
  if (got > static_cast<ssize_t>(handshake::kChallengeBytes + 1)) std::abort();
  return 0;
}
