#include "yoke/comm/tcp/links.h"

#include <fmt/format.h>

#include "yoke/cluster/link_check.h"
#include "yoke/comm/cut_link.h"
#include "yoke/net/socket_options.h"

namespace yoke::comm::tcp {
namespace {

// Seconds between two checks of the job's failure while waiting for a peer to connect.
constexpr double kGlance = 0.02;
// Seconds without an acknowledgement. Elastic jobs only check a link that is in doubt; they wait a little
// longer than a machine without heartbeats is given, because that would be the better cause.
constexpr double kCutOff = 20;
constexpr double kInDoubt = 2.5;
// Seconds that calls of an elastic job go unanswered until the link is in doubt.
constexpr double kUnanswered = 3;
constexpr double kOneMoreCall = 0.5;
// Seconds a lost connection waits for the job to report the cause.
constexpr double kNewsSeconds = 0.3;

}  // namespace

Links::Links(const TcpSetup& setup, std::string purpose)
    : setup_(setup),
      purpose_(std::move(purpose)),
      connections_(static_cast<size_t>(setup.size) * static_cast<size_t>(setup.lanes)) {}

std::unique_ptr<net::Connection>& Links::slot(int peer, int lane) {
  return connections_[static_cast<size_t>(peer) * static_cast<size_t>(setup_.lanes) +
                      static_cast<size_t>(lane)];
}

net::Connection* Links::find(int peer, int lane) const {
  return const_cast<Links*>(this)->slot(peer, lane).get();
}

net::Connection& Links::open(int peer, int lane, Deadline deadline, const Doing& doing) {
  std::unique_ptr<net::Connection>& connection = slot(peer, lane);
  while (!connection) {
    check(doing);
    if (deadline.passed())
      throw CommError("{}: {} has not connected after {:.1f} s. Check that it is running.", where(doing),
                      name_of(peer), deadline.elapsed());
    connection = try_open_now(peer, lane, deadline, kGlance, doing);
  }
  return *connection;
}

net::Connection* Links::try_open(int peer, int lane, Deadline deadline, const Doing& doing) {
  std::unique_ptr<net::Connection>& connection = slot(peer, lane);
  if (connection) return connection.get();
  connection = try_open_now(peer, lane, deadline, deadline.left(), doing);
  return connection.get();
}

std::unique_ptr<net::Connection> Links::try_open_now(int peer, int lane, Deadline deadline, double listen,
                                                     const Doing& doing) const {
  if (setup_.rank < peer) return call(peer, lane, deadline, doing);
  return setup_.acceptor->take_if(introduction(peer, lane, -1), deadline.sooner(listen));
}

// A peer listens before its address is published, so an unreachable peer has most likely died: check the
// job's failure after 0.5, 1, 2, … seconds, and give up after about sixteen.
std::unique_ptr<net::Connection> Links::call(int peer, int lane, Deadline deadline,
                                             const Doing& doing) const {
  const cluster::Member& member = setup_.members[static_cast<size_t>(peer)];
  const net::Address address = net::parse_address(member.address);
  const net::Introduction self = introduction(setup_.rank, lane, member.rank);
  const Deadline begun = Deadline::after(0);
  std::string why;
  for (double patience = 0.5; patience <= 8 && !deadline.passed(); patience *= 2) {
    check(doing);
    try {
      return net::dial(address, setup_.ticket, self, deadline.sooner(patience));
    } catch (const net::HandshakeRefused& error) {
      lost(peer, error.what(), deadline, doing);
    } catch (const Error& error) {
      why = error.what();
    }
    if (setup_.elastic && begun.elapsed() > kUnanswered && !cluster::answers(member.address, kOneMoreCall))
      throw CutLinkError(member.rank,
                         fmt::format("{}: {} does not answer: {}", where(doing), name_of(peer), why));
  }
  lost(peer, why, deadline, doing);
}

double Links::cut_off() const {
  return setup_.elastic ? kInDoubt : kCutOff;
}

void Links::check_acknowledged(int peer, const net::Connection& connection, Deadline deadline,
                               const Doing& doing) const {
  const double seconds = net::seconds_unacknowledged(connection.fd());
  if (seconds <= cut_off()) return;
  const std::string why =
      fmt::format("its machine has acknowledged nothing for {:.{}f} s, so the link between the two is cut",
                  seconds, setup_.elastic ? 1 : 0);
  if (!setup_.elastic) lost(peer, why, deadline, doing);
  check(doing);
  throw CutLinkError(setup_.members[static_cast<size_t>(peer)].rank,
                     fmt::format("{}: lost {}: {}", where(doing), name_of(peer), why));
}

net::Introduction Links::introduction(int caller, int lane, int callee) const {
  return {setup_.members[static_cast<size_t>(caller)].rank, purpose_, setup_.group,
          static_cast<uint32_t>(lane), callee};
}

void Links::close() {
  for (auto& connection : connections_) connection.reset();
}

std::string Links::name_of(int peer) const {
  const cluster::Member& member = setup_.members[static_cast<size_t>(peer)];
  return fmt::format("rank {} on {}", member.rank, member.host);
}

std::string Links::where(const Doing& doing) const {
  return fmt::format("{} (rank {} of {})", doing.text(), setup_.rank, setup_.size);
}

void Links::check(const Doing& doing) const {
  if (setup_.failure && setup_.failure->set()) setup_.failure->check(where(doing).c_str());
}

void Links::lost(int peer, const std::string& why, Deadline deadline, const Doing& doing) const {
  if (setup_.failure) {
    pollfd news{setup_.failure->event_fd(), POLLIN, 0};
    ::poll(&news, 1, static_cast<int>(kNewsSeconds * 1e3));
    check(doing);
  }
  throw CommError("{}: lost {} after {:.2f} s: {}. See that rank's own output for the cause.", where(doing),
                  name_of(peer), deadline.elapsed(), why);
}

}  // namespace yoke::comm::tcp
