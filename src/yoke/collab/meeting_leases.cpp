// Who gets how many samples. A batch takes as long as its slowest lease, so leases are guided: several
// batches of a peer at once while much is left, single ones at the end, none for a peer that the others would
// wait for.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "yoke/collab/meeting.h"

namespace yoke::collab {
namespace {

constexpr double kLeasePatience = 8;   // times the time it should take
constexpr double kFirstPatience = 10;  // times the timeout, of a peer whose speed is unknown
constexpr double kOverdue = 3;         // times the expected time: such a lease is not counted on
constexpr double kMostTurns = 4096;    // leases that are planned ahead
constexpr double kNever = 1e300;
constexpr double kGuided = 0.7;     // of what a peer could do until the batch is full: speeds change
constexpr double kWorthAsking = 4;  // times the overhead that a lease should take
constexpr double kLongest = 0.25;   // of the timeout: several batches take no longer

}  // namespace

// Whether it takes part in what is left of the batch.
bool Meeting::counts_on(const Peer& peer, double now) const {
  if (peer.link < 0 || peer.epoch != epoch_ || peer.discarded || !peer.computes) return false;
  if (!peer.lease || peer.rate <= 0) return true;
  return now <= peer.lease_begun + kOverdue * static_cast<double>(peer.lease->count) / peer.rate;
}

// When its lease is done, at this speed.
double Meeting::free_at(const Peer& peer, double rate, double now) {
  if (!peer.lease) return now;
  return std::max(now, peer.lease_begun + peer.overhead + static_cast<double>(peer.lease->count) / rate);
}

// When the batch would be full if all were busy until then, of whom those of unknown speed are as fast as the
// mean; kNever: no speed is known.
double Meeting::finish_together(int64_t left, double now) const {
  double known = 0, sum = 0;
  for (const Peer& peer : peers_) {
    if (!counts_on(peer, now)) continue;
    known += peer.rate > 0;
    sum += peer.rate;
  }
  if (known == 0) return kNever;
  std::vector<std::pair<double, double>> free;  // when, samples per second
  for (const Peer& peer : peers_) {
    if (!counts_on(peer, now)) continue;
    const double rate = peer.rate > 0 ? peer.rate : sum / known;
    free.emplace_back(free_at(peer, rate, now), rate);
  }
  std::sort(free.begin(), free.end());
  double end = kNever, rate = 0, begins = 0;  // `begins`: rate * when, summed
  for (auto [when, speed] : free) {
    if (when >= end) break;
    rate += speed;
    begins += speed * when;
    end = (static_cast<double>(left) + begins) / rate;
  }
  return end;
}

int64_t Meeting::guided_count(const Peer& peer, int64_t left, double now) const {
  if (peer.rate <= 0) return peer.batch;
  const double rest = std::max(0.0, finish_together(left, now) - now - peer.overhead);
  // What would be left for another lease must be worth its messages.
  const bool all = (1 - kGuided) * rest < kWorthAsking * peer.overhead;
  const double seconds = std::min(all ? rest : kGuided * rest, kLongest * options_.timeout);
  const double batches = peer.rate * seconds / static_cast<double>(peer.batch);
  const int64_t most = left / peer.batch + 1;
  if (!(batches >= 1)) return peer.batch;
  return batches < static_cast<double>(most) ? static_cast<int64_t>(batches) * peer.batch : most * peer.batch;
}

// When the others would have done all of the batch, `left` samples of which are not leased, if each lease
// goes to the one that is done with it first. A peer that would take longer for its lease would keep them
// waiting.
double Meeting::finish_without(const Peer& peer, int64_t left, double now) const {
  using Next = std::pair<double, const Peer*>;  // when it would be done with one more batch
  std::priority_queue<Next, std::vector<Next>, std::greater<>> others;
  const auto seconds = [](const Peer& other) {
    return other.overhead + static_cast<double>(other.batch) / other.rate;
  };
  double end = now, turns = 0;
  for (const Peer& other : peers_) {
    if (&other == &peer || !counts_on(other, now)) continue;
    if (other.rate <= 0) return kNever;  // who knows?
    const double free = free_at(other, other.rate, now);
    if (other.lease) end = std::max(end, free);
    turns = std::max(turns, static_cast<double>(left) / static_cast<double>(other.batch));
    others.emplace(free + seconds(other), &other);
  }
  if (others.empty() || turns > kMostTurns) return kNever;  // far from the end of the batch
  while (left > 0) {
    auto [done, other] = others.top();
    others.pop();
    end = std::max(end, done);
    left -= other->batch;
    others.emplace(done + seconds(*other), other);
  }
  return end;
}

bool Meeting::grant(Peer& peer, double now) {
  if (std::exchange(roles_are_old_, false)) assign_roles();
  if (!peer.computes) return false;
  const int64_t left = options_.target_batch - done_ - leased_;
  if (left <= 0 || peer.lease) return false;
  Range lease{0, std::min(guided_count(peer, left, now), left)};
  if (peer.rate > 0 &&
      now + peer.overhead + static_cast<double>(lease.count) / peer.rate > finish_without(peer, left, now))
    return false;
  if (returned_.empty()) {
    lease.first = std::exchange(next_sample_, next_sample_ + lease.count);
  } else {
    Range& from = returned_.back();
    lease.count = std::min(lease.count, from.count);
    lease.first = from.first;
    from.first += lease.count;
    from.count -= lease.count;
    if (from.count == 0) returned_.pop_back();
  }
  leased_ += lease.count;
  peer.lease = lease;
  const double expected = peer.rate > 0 ? kLeasePatience * static_cast<double>(lease.count) / peer.rate
                                        : kFirstPatience * options_.timeout;
  peer.lease_begun = now;
  peer.lease_ends = now + std::max(options_.timeout, expected);
  return true;
}

}  // namespace yoke::collab
