// Averaging rounds: who sums what, votes, and what happens after a failure.
#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/collab/balance.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/net/secret.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr int kMostAttempts = 6;
constexpr double kRoundPatience = 8;  // times the timeout
constexpr int64_t kLeastPart = 1024;  // elements: smaller parts cost more messages than they save
constexpr size_t kMostLosses = 100'000;
constexpr double kTypicalRate = 12.5e6;  // bytes per second, until links are known: 100 Mbit/s

std::vector<Bandwidth> links_of(const std::vector<std::pair<bool, double>>& peers) {
  std::vector<Bandwidth> links;
  for (auto& [client_only, rate] : peers)
    links.push_back(client_only ? Bandwidth(0) : rate > 0 ? Bandwidth(rate) : std::nullopt);
  return links;
}

}  // namespace

// Known to the meeting point and these two only.
uint64_t Meeting::pair_token(int from, int to) const {
  const std::string text = fmt::format("{} {} {} {}", epoch_, round_->attempt, from, to);
  const net::Digest digest = net::Secret::from_text(token_key_).sign({net::as_bytes(text)});
  uint64_t token = 0;
  for (size_t i = 0; i < 8; ++i) token = token << 8 | static_cast<uint64_t>(digest[i]);
  return token;
}

void Meeting::start_attempt(std::vector<int> members, int attempt, double now) {
  round_ = Round{};
  round_->attempt = attempt;
  round_->members = std::move(members);
  reinstate_reducers();
  std::vector<std::pair<bool, double>> links;
  double slowest = kTypicalRate;
  for (int number : round_->members) {
    const Peer& peer = peers_[static_cast<size_t>(number)];
    links.emplace_back(peer.client_only, peer.bandwidth);
    if (peer.bandwidth > 0) slowest = std::min(slowest, peer.bandwidth);
  }
  const std::vector<double> shares = balance_load(links_of(links)).shares;
  round_->parts = integer_parts(options_.elements, shares, kLeastPart);
  for (size_t i = 0; i < shares.size(); ++i)
    peers_[static_cast<size_t>(round_->members[i])].share =
        static_cast<double>(round_->parts[i]) / static_cast<double>(std::max<int64_t>(1, options_.elements));
  const double bytes = 4.0 * static_cast<double>(options_.elements) * static_cast<double>(links.size());
  round_->begun = now;
  round_->ends = now + kRoundPatience * options_.timeout + 4 * bytes / slowest;
  for (int number : round_->members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.wanted.reset();
    reply(peer.link, round_for(peer));
  }
}

// If all who could sum have been relieved of it, they try again.
void Meeting::reinstate_reducers() {
  for (int number : round_->members)
    if (!peers_[static_cast<size_t>(number)].client_only) return;
  for (int number : round_->members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.client_only = peer.address.empty();
  }
}

Json Meeting::round_for(const Peer& peer) const {
  Json members = Json::array();
  int64_t begin = 0;
  for (size_t i = 0; i < round_->members.size(); ++i) {
    const Peer& other = peers_[static_cast<size_t>(round_->members[i])];
    members.push_back({{"peer", other.number},
                       {"name", short_name(other.key)},
                       {"address", other.address},
                       {"weight", other.samples},
                       {"begin", begin},
                       {"count", round_->parts[i]},
                       {"send_token", pair_token(peer.number, other.number)},
                       {"receive_token", pair_token(other.number, peer.number)}});
    begin += round_->parts[i];
  }
  return {{"type", "average"},
          {"epoch", epoch_},
          {"attempt", round_->attempt},
          {"self", peer.number},
          {"elements", options_.elements},
          {"robust", to_string(options_.robust)},
          {"suspects", options_.suspects},
          {"seconds", round_->ends - round_->begun},
          {"members", members}};
}

void Meeting::result(Peer& peer, const Json& message, double now) {
  const int64_t epoch = integer_field(message, "epoch", 0, INT64_MAX);
  const int64_t attempt = integer_field(message, "attempt", 0, kMostAttempts);
  const bool member = round_ && std::count(round_->members.begin(), round_->members.end(), peer.number) > 0;
  if (!member || epoch != epoch_ || attempt != round_->attempt) {
    peer.discarded = false;
    take_back(peer);
    return reply(peer.link, restart_reply(peer));
  }
  (boolean_field(message, "complete") ? round_->complete : round_->incomplete).insert(peer.number);
  for (const Json& lost : list_field(message, "lost", 1024))
    round_->blamed[static_cast<int>(integer_field(lost, "peer", 0, INT32_MAX))][peer.number] =
        text_field(lost, "why", 1024);
  for (const Json& outlier : list_field(message, "outliers", 1024))
    round_->outliers[static_cast<int>(integer_field(outlier, "peer", 0, INT32_MAX))].push_back(
        number_field(outlier, "score"));
  decide_if_all_voted(now);
}

void Meeting::decide_if_all_voted(double now) {
  const Round& round = *round_;
  if (round.members.empty()) {
    round_.reset();  // their samples are leased again
    return;
  }
  if (round.complete.size() + round.incomplete.size() < round.members.size()) return;
  if (round.incomplete.empty())
    commit(now);
  else
    try_again(now);
}

void Meeting::commit(double now) {
  for (auto& [number, blames] : round_->blamed) {
    if (number >= static_cast<int>(peers_.size())) continue;
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.why_dropped = blames.begin()->second;
    if (peer.link >= 0) ++peer.times_dropped;
    log::warn("collab: step {}: peer {} ({}) was left out: {}", epoch_, number, short_name(peer.key),
              peer.why_dropped);
  }
  for (auto& [number, scores] : round_->outliers) {
    if (number >= static_cast<int>(peers_.size())) continue;
    std::sort(scores.begin(), scores.end());
    peers_[static_cast<size_t>(number)].outlier = scores[scores.size() / 2];
  }
  const double loss = loss_sum_ / static_cast<double>(std::max<int64_t>(1, done_));
  if (losses_.size() < kMostLosses) losses_.push_back(loss);
  previous_ = {epoch_, begun_at_};
  begun_at_ = next_sample_;
  ++epoch_;
  over_ = epoch_ >= options_.steps;
  const std::vector<int> members = round_->members;
  round_.reset();
  done_ = leased_ = 0;
  loss_sum_ = 0;
  full_since_ = -1;
  // What was not averaged (a peer lost during the round) is not repeated: the position moves on.
  returned_.clear();
  for (Peer& peer : peers_) {
    peer.done.clear();
    peer.samples = 0;
    peer.lease.reset();
  }
  for (int number : members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.epoch = epoch_;
    peer.held = false;
    peer.heard = now;
    reply(peer.link, {{"type", "commit"}, {"epoch", epoch_}, {"loss", loss}});
  }
}

// The peer that most others blame sums no more; if it did not sum, it is left out.
void Meeting::try_again(double now) {
  ++repeated_;
  std::vector<int> members = round_->members;
  const int attempt = round_->attempt + 1;
  int worst = -1;
  size_t most = 0;
  for (auto& [number, blames] : round_->blamed) {
    const bool here = std::count(members.begin(), members.end(), number) > 0;
    if (here && blames.size() >= most) {  // of equals the newest: the first started the run
      worst = number;
      most = blames.size();
    }
  }
  if (attempt >= kMostAttempts) {
    log::warn("collab: step {}: averaging failed {} times; its samples are computed again", epoch_, attempt);
    round_.reset();
    for (int number : members) {
      Peer& peer = peers_[static_cast<size_t>(number)];
      take_back(peer);
      reply(peer.link, restart_reply(peer));
    }
    return;
  }
  if (worst >= 0) {
    Peer& peer = peers_[static_cast<size_t>(worst)];
    const std::string why = round_->blamed[worst].begin()->second;
    if (!peer.client_only && peer.share > 0) {
      peer.client_only = true;
      log::warn("collab: step {}: peer {} ({}) sums no more: {}", epoch_, worst, short_name(peer.key), why);
    } else {
      log::warn("collab: step {}: peer {} ({}) is left out: {}", epoch_, worst, short_name(peer.key), why);
      drop(peer, why);
      peer.discarded = false;
      std::erase(members, worst);
      reply(peer.link, restart_reply(peer));
    }
  }
  const bool somebody_sums = std::any_of(members.begin(), members.end(), [&](int number) {
    return !peers_[static_cast<size_t>(number)].address.empty();
  });
  if (done_ < options_.target_batch || !somebody_sums) {  // samples or reducers are missing: first those
    round_.reset();
    for (int number : members) reply(peers_[static_cast<size_t>(number)].link, {{"type", "wait"}});
    return;
  }
  start_attempt(std::move(members), attempt, now);
}

}  // namespace yoke::collab
