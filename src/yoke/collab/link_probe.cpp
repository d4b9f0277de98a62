// A request is a kMessage frame: the direction in `channel`, the bytes of the burst in `context`. The burst
// follows from the side that sends, as kData frames; of a push the answer is a kAnswer frame with the
// nanoseconds of its second half in `context`. Shapers let the beginning of a burst pass at once.
#include "yoke/collab/link_probe.h"

#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::collab {
namespace {

constexpr const char* kProbePurpose = "collab.probe";
constexpr uint16_t kPush = 1, kPull = 2;
constexpr size_t kProbeFrame = 16 << 10;
constexpr size_t kFirstBurst = 8 * kProbeFrame;
constexpr size_t kLargestBurst = 2 << 20;
constexpr double kLongEnough = 0.1;  // seconds
constexpr double kStopEvery = 0.05;
constexpr double kShortest = 1e-6;

void send_burst(net::Connection& connection, size_t bytes, Deadline deadline) {
  const std::vector<std::byte> piece(kProbeFrame);
  for (size_t sent = 0; sent < bytes; sent += kProbeFrame) {
    connection.post({.type = net::FrameType::kData}, piece);
    connection.flush_all(deadline);
  }
}

// Seconds between the frame in the middle and the last one, in which half of the bytes arrive.
double receive_burst(net::Connection& connection, size_t bytes, Deadline deadline) {
  double middle = 0;
  for (size_t received = 0; received < bytes; received += kProbeFrame) {
    net::FrameHeader header;
    const std::vector<std::byte> piece = connection.receive_frame(header, deadline);
    if (header.type != net::FrameType::kData || piece.size() != kProbeFrame)
      throw CommError("sent an unexpected frame");
    if (received + kProbeFrame == bytes / 2) middle = now_seconds();
  }
  return std::max(kShortest, now_seconds() - middle);
}

void ask(net::Connection& connection, uint16_t direction, size_t bytes, Deadline deadline) {
  connection.post_copy({.type = net::FrameType::kMessage, .channel = direction, .context = bytes}, {});
  connection.flush_all(deadline);
}

double push(net::Connection& connection, size_t bytes, Deadline deadline) {
  ask(connection, kPush, bytes, deadline);
  send_burst(connection, bytes, deadline);
  net::FrameHeader answer;
  connection.receive_frame(answer, deadline);
  if (answer.type != net::FrameType::kAnswer) throw CommError("sent an unexpected frame");
  return std::max(kShortest, 1e-9 * static_cast<double>(answer.context));
}

double pull(net::Connection& connection, size_t bytes, Deadline deadline) {
  ask(connection, kPull, bytes, deadline);
  return receive_burst(connection, bytes, deadline);
}

template <class Burst>
double rate_of(Burst&& burst) {
  for (size_t bytes = kFirstBurst;; bytes *= 2) {
    const double seconds = burst(bytes);
    if (seconds >= kLongEnough || bytes >= kLargestBurst) return static_cast<double>(bytes / 2) / seconds;
  }
}

// Until the caller closes the connection.
void answer(net::Connection& connection, double timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (;;) {
    net::FrameHeader request;
    connection.receive_frame(request, deadline);
    const auto bytes = static_cast<size_t>(request.context);
    if (request.type != net::FrameType::kMessage || bytes < kFirstBurst || bytes > kLargestBurst ||
        bytes % (2 * kProbeFrame) != 0)
      throw CommError("a probe of {} bytes", bytes);
    if (request.channel == kPull) {
      send_burst(connection, bytes, deadline);
      continue;
    }
    const double seconds = receive_burst(connection, bytes, deadline);
    connection.post_copy({.type = net::FrameType::kAnswer, .context = static_cast<uint64_t>(1e9 * seconds)},
                         {});
    connection.flush_all(deadline);
  }
}

}  // namespace

ProbeServer::ProbeServer(net::Acceptor& acceptor, double timeout)
    : acceptor_(acceptor), timeout_(timeout), thread_([this] { serve(); }) {}

ProbeServer::~ProbeServer() {
  stop_ = true;
  thread_.join();
}

void ProbeServer::serve() {
  while (!stop_) {
    try {
      if (auto connection = acceptor_.take_any(kProbePurpose, Deadline::after(kStopEvery)))
        answer(*connection, timeout_);
    } catch (const Error& error) {  // as a rule the caller has finished
      log::debug("collab: a probe ended: {}", error.what());
    }
  }
}

LinkSpeed probe_link(const std::string& address, const net::JobTicket& ticket, int peer, double timeout) try {
  const Deadline deadline = Deadline::after(timeout);
  auto connection =
      net::dial(net::parse_address(address), ticket, {.rank = peer, .purpose = kProbePurpose}, deadline);
  return {rate_of([&](size_t bytes) { return push(*connection, bytes, deadline); }),
          rate_of([&](size_t bytes) { return pull(*connection, bytes, deadline); })};
} catch (const Error& error) {
  throw CommError("collab: the link to the peer at {} could not be measured: {}", address, error.what());
}

}  // namespace yoke::collab
