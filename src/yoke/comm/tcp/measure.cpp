#include "yoke/comm/tcp/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/comm/tcp/executor.h"

namespace yoke::comm::tcp {
namespace {

constexpr int kRoundTrips = 6;
constexpr int kLargeTrips = 3;
constexpr size_t kLargeBytes = 256 << 10;
// Marks a measuring frame.
constexpr uint8_t kMeasures = 2;

class Measuring : public Doing {
 public:
  explicit Measuring(const Operation& operation) : operation_(operation) {}
  std::string text() const override { return "measuring the links before " + operation_.descriptor.text(); }

 private:
  const Operation& operation_;
};

class Prober {
 public:
  Prober(Links& links, const Operation& operation, uint64_t sequence, Deadline deadline)
      : links_(links), operation_(operation), sequence_(sequence), deadline_(deadline), doing_(operation) {}

  void send(int peer, net::Bytes payload) {
    net::FrameHeader header;
    header.flags = kDescribes | kMeasures;
    header.generation = links_.setup().ticket.generation;
    header.fingerprint = operation_.fingerprint;
    header.context = sequence_;
    net::Connection& connection = links_.open(peer, 0, deadline_, doing_);
    guard(peer, [&] {
      connection.post(header, payload);
      connection.flush_all(deadline_);
      return true;
    });
  }

  void receive(int peer, std::span<std::byte> into) {
    net::Connection& connection = links_.open(peer, 0, deadline_, doing_);
    auto step = [&] {
      const net::FrameHeader* header = connection.next_header();
      if (!header) return false;
      bool agrees = header->fingerprint == operation_.fingerprint && header->context == sequence_;
      if (!agrees) disagree(peer, connection);
      if (header->length != into.size()) throw CommError("a frame of {} bytes", header->length);
      return connection.receive(into);
    };
    while (!guard(peer, step)) wait(peer, connection);
  }

 private:
  template <class Step>
  bool guard(int peer, Step step) {
    try {
      return step();
    } catch (const MismatchError&) {
      throw;
    } catch (const CommError& error) {
      links_.lost(peer, error.what(), deadline_, doing_);
    }
  }

  void wait(int peer, net::Connection& connection) {
    links_.check(doing_);
    if (deadline_.passed())
      throw CommError("{}: nothing from {} for {:.1f} s", links_.where(doing_), links_.name_of(peer),
                      deadline_.elapsed());
    pollfd polled[2] = {{connection.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    if (links_.setup().failure) polled[1].fd = links_.setup().failure->event_fd();
    ::poll(polled, 2, std::min(deadline_.left_ms(), 1000));
  }

  [[noreturn]] void disagree(int peer, net::Connection& connection) {
    Descriptor theirs;
    net::FrameHeader header;
    if (uint64_t length = connection.next_header()->length; length > kLargeBytes)
      throw CommError("a frame of {} bytes", length);
    std::vector<std::byte> payload = connection.receive_frame(header, deadline_);
    if ((header.flags & kDescribes) && payload.size() >= sizeof(theirs))
      std::memcpy(&theirs, payload.data(), sizeof(theirs));
    const auto& members = links_.setup().members;
    throw MismatchError(
        "{}", describe_mismatch(members[static_cast<size_t>(links_.setup().rank)].rank, operation_.descriptor,
                                members[static_cast<size_t>(peer)].rank, theirs));
  }

  Links& links_;
  const Operation& operation_;
  uint64_t sequence_;
  Deadline deadline_;
  Measuring doing_;
};

double best_round_trip(Prober& prober, std::span<std::byte> out, std::span<std::byte> back, int times) {
  double best = 1e9;
  for (int trip = 0; trip < times; ++trip) {
    double begin = now_seconds();
    prober.send(1, out);
    prober.receive(1, back);
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

plan::LinkCost measure(Prober& prober, std::span<std::byte> small, std::span<std::byte> large,
                       plan::LinkCost cost) {
  best_round_trip(prober, small, small, 1);  // connects and warms up
  double round_trip = best_round_trip(prober, small, small, kRoundTrips);
  double with_large = best_round_trip(prober, large, small, kLargeTrips);
  cost.alpha = coarse(round_trip / 2);
  cost.beta = coarse(std::max(with_large - round_trip, 1e-7) / static_cast<double>(kLargeBytes));
  return cost;
}

void answer(Prober& prober, std::span<std::byte> small, std::span<std::byte> large) {
  for (int trip = 0; trip < 1 + kRoundTrips + kLargeTrips; ++trip) {
    prober.receive(0, trip <= kRoundTrips ? small : large);
    prober.send(0, small);
  }
}

// Values received from rank 0, in seconds per message and per byte.
void check(const plan::LinkCost& cost) {
  for (double figure : {cost.alpha, cost.beta, cost.gamma}) {
    if (!(figure >= 0 && figure <= 1e6))
      throw CommError(
          "rank 0 measured links of {} s a message, {} s a byte, {} s to combine one: out of range",
          cost.alpha, cost.beta, cost.gamma);
  }
}

}  // namespace

double coarse(double value) {
  return std::exp2(3 * std::round(std::log2(value) / 3));
}

plan::LinkCost measure_cost(Links& links, const Operation& operation, uint64_t sequence, Deadline deadline) {
  const int rank = links.setup().rank;
  Prober prober(links, operation, sequence, deadline);
  // Frames start with our descriptor, for a peer that receives one while it runs another operation.
  std::vector<std::byte> small(sizeof(Descriptor) + sizeof(plan::LinkCost));
  std::vector<std::byte> large(rank < 2 ? kLargeBytes : 0);
  std::memcpy(small.data(), &operation.descriptor, sizeof(Descriptor));
  plan::LinkCost cost = links.setup().cost;
  std::byte* figures = small.data() + sizeof(Descriptor);
  if (rank == 1) answer(prober, small, large);
  if (rank > 0) {
    prober.receive(0, small);
    std::memcpy(&cost, figures, sizeof(cost));
    check(cost);
    return cost;
  }
  cost = measure(prober, small, large, cost);
  std::memcpy(small.data(), &operation.descriptor, sizeof(Descriptor));
  std::memcpy(figures, &cost, sizeof(cost));
  for (int peer = 1; peer < links.setup().size; ++peer) prober.send(peer, small);
  return cost;
}

}  // namespace yoke::comm::tcp
