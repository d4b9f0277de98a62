// What peers' links can do, and from that who computes (roles.h).
#include <algorithm>
#include <cmath>

#include "yoke/base/log.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/collab/roles.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr double kMostRate = 1e15;
constexpr double kLeastBytes = 256 << 10;  // of a round: less says nothing about a link
constexpr double kBusiest = 0.95;          // of the longest time: such links are measured by the round
constexpr double kWorthIt = 0.05;          // gain for which roles change

double rate_field(const Json& message, const char* name) {
  const double rate = number_field(message, name);
  if (!(rate >= 0 && rate < kMostRate)) throw BadMessage(fmt::format("field '{}' is out of range", name));
  return rate;
}

Bandwidth known(double rate) {
  return rate > 0 ? Bandwidth(rate) : std::nullopt;
}

// What one direction of a peer's link did in a round.
struct Traffic {
  double* estimate = nullptr;
  double bytes = 0, seconds = 0;

  void add(double more, double until) {
    bytes += more;
    seconds = std::max(seconds, until);
  }
  double expected_seconds() const { return *estimate > 0 ? bytes / *estimate : 0; }
};

}  // namespace

LinkSpeed speed_field(const Json& message) {
  return {rate_field(message, "upload"), rate_field(message, "download")};
}

LinkSpeed Meeting::speed_of(const Peer& peer) {
  return {peer.says.upload > 0 ? peer.says.upload : peer.measured.upload,
          peer.says.download > 0 ? peer.says.download : peer.measured.download};
}

Link Meeting::link_of(const Peer& peer) const {
  if (options_.roles == RolePolicy::kEqual) return {std::nullopt, std::nullopt, !peer.client_only};
  const LinkSpeed speed = speed_of(peer);
  return {known(speed.upload), known(speed.download), !peer.client_only};
}

// A probe shows at least what both ends can do.
void Meeting::take_probe(Peer& peer, const Json& probe) {
  const LinkSpeed speed = speed_field(probe);
  auto at_least = [](double& estimate, double rate) { estimate = std::max(estimate, rate); };
  at_least(peer.measured.upload, speed.upload);
  at_least(peer.measured.download, speed.download);
  const auto with = static_cast<size_t>(integer_field(probe, "with", 0, INT32_MAX));
  if (with >= peers_.size()) return;
  at_least(peers_[with].measured.upload, speed.download);
  at_least(peers_[with].measured.download, speed.upload);
}

void Meeting::take_received(const Peer& peer, const Json& received) {
  for (const Json& row : received) {
    Received one{static_cast<int>(integer_field(row, "peer", 0, INT32_MAX)), peer.number,
                 static_cast<double>(integer_field(row, "bytes", 0, INT64_MAX)),
                 number_field(row, "seconds")};
    if (!(one.seconds > 0 && one.seconds < 1e9)) throw BadMessage("field 'seconds' is out of range");
    if (one.from < static_cast<int>(peers_.size())) round_->received.push_back(one);
  }
}

// The links that should have taken longest were busy all the time: the round shows what they can do. Of the
// others it shows a lower bound.
void Meeting::learn_from_round() {
  std::map<int, Traffic> ups, downs;
  for (const Received& one : round_->received) {
    ups[one.from].add(one.bytes, one.seconds);
    downs[one.to].add(one.bytes, one.seconds);
  }
  std::vector<Traffic> all;
  double longest = 0;
  for (auto* direction : {&ups, &downs}) {
    for (auto& [number, traffic] : *direction) {
      Peer& peer = peers_[static_cast<size_t>(number)];
      traffic.estimate = direction == &ups ? &peer.measured.upload : &peer.measured.download;
      if (traffic.bytes < kLeastBytes) continue;
      longest = std::max(longest, traffic.expected_seconds());
      all.push_back(traffic);
    }
  }
  for (const Traffic& traffic : all) {
    const double rate = traffic.bytes / traffic.seconds;
    const bool busiest = traffic.expected_seconds() > 0 && traffic.expected_seconds() >= kBusiest * longest;
    if (rate > *traffic.estimate)
      *traffic.estimate = rate;
    else if (busiest)
      *traffic.estimate = (*traffic.estimate + rate) / 2;
  }
}

void Meeting::assign_roles() {
  std::vector<Peer*> present;
  std::vector<PeerPower> powers;
  std::vector<bool> now;
  for (Peer& peer : peers_) {
    if (peer.link < 0 || peer.epoch != epoch_ || peer.discarded) continue;
    const LinkSpeed speed = speed_of(peer);
    present.push_back(&peer);
    powers.push_back({known(speed.upload), known(speed.download), peer.rate, !peer.client_only});
    now.push_back(peer.computes);
  }
  const std::vector<bool> all(present.size(), true);
  const bool somebody_sums =
      std::any_of(powers.begin(), powers.end(), [](const PeerPower& peer) { return peer.accepts; });
  std::vector<bool> computes = all;
  if (options_.roles == RolePolicy::kAuto && somebody_sums && present.size() > 1) {
    const StepWork work{static_cast<double>(options_.target_batch),
                        4.0 * static_cast<double>(options_.elements)};
    const Roles together = roles_with(powers, work, all);
    if (together.average_seconds > kWorthIt * together.compute_seconds) {
      const bool valid = std::count(now.begin(), now.end(), true) > 0;
      const Roles before = valid ? roles_with(powers, work, now) : together;
      const Roles best = choose_roles(powers, work);
      computes = best.seconds() < (1 - kWorthIt) * before.seconds() ? best.computes : before.computes;
    }
  }
  for (size_t i = 0; i < present.size(); ++i) {
    if (std::exchange(present[i]->computes, computes[i]) != computes[i])
      log::info("collab: step {}: peer {} ({}) {}", epoch_, present[i]->number, short_name(present[i]->key),
                computes[i] ? "computes" : "does not compute: without its gradient the step is faster");
  }
}

}  // namespace yoke::collab
