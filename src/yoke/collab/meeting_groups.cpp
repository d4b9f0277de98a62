// Groups of an averaging round, who sums what in them, and the messages that start them.
#include <algorithm>
#include <numeric>

#include "yoke/base/random.h"
#include "yoke/collab/balance.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/net/secret.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr double kRoundPatience = 8;     // times the timeout
constexpr double kOthersRounds = 6;      // other groups may have to repeat theirs
constexpr int64_t kLeastPart = 1024;     // elements: smaller parts cost more messages than they save
constexpr double kTypicalRate = 12.5e6;  // bytes per second, until links are known: 100 Mbit/s

}  // namespace

// Known to the meeting point and these two only.
uint64_t Meeting::pair_token(int attempt, int from, int to) const {
  const std::string text = fmt::format("{} {} {} {}", epoch_, attempt, from, to);
  const net::Digest digest = net::Secret::from_text(token_key_).sign({net::as_bytes(text)});
  uint64_t token = 0;
  for (size_t i = 0; i < 8; ++i) token = token << 8 | static_cast<uint64_t>(digest[i]);
  return token;
}

// A robust method judges peers by the others of their group: chance should not give liars a majority there.
size_t Meeting::group_size_for(size_t peers) const {
  if (options_.group_size > 0) return static_cast<size_t>(options_.group_size);
  return options_.robust == Robust::kNone ? chosen_group_size(peers) : peers;
}

bool Meeting::can_sum(int number) const {
  return !peers_[static_cast<size_t>(number)].client_only;
}

// Other groups in each step: who averages with whom first is random. A peer without samples has a value of no
// weight.
void Meeting::start_round(std::vector<int> members, double now) {
  round_ = Round{};
  round_->members = std::move(members);
  const auto count = static_cast<int64_t>(round_->members.size());
  round_->group_size = group_size_for(round_->members.size());
  for (bool with_samples : {true, false}) {  // groups take turns to choose: all get some
    for (int64_t place : random_permutation(count, static_cast<uint64_t>(epoch_))) {
      const int number = round_->members[static_cast<size_t>(place)];
      const int64_t samples = peers_[static_cast<size_t>(number)].samples;
      if ((samples > 0) == with_samples) round_->classes.push_back({{number}, static_cast<double>(samples)});
    }
  }
  start_phase(now);
}

void Meeting::start_phase(double now) {
  Round& round = *round_;
  if (!reinstate_reducers(round.members)) return give_up_round();
  const bool one_group = round.members.size() <= round.group_size;
  round.bundles = grid_round(round.classes, one_group ? round.classes.size() : round.group_size,
                             [&](int number) { return can_sum(number); });
  round.groups.clear();
  round.begun = round.ends = now;
  for (size_t i = 0; i < round.bundles.size(); ++i)
    for (const GridGroup& group : round.bundles[i].groups)
      round.groups.push_back(group_of(round.bundles[i], i, group));
  for (Group& group : round.groups) start_group(group, now);
}

Meeting::Group Meeting::group_of(const GridBundle& bundle, size_t index, const GridGroup& from) const {
  Group group{index, from.givers, {}, {}, 0};
  for (size_t one : bundle.classes) group.weights.push_back(round_->classes[one].weight);
  group.members.insert(group.members.end(), from.receivers.begin(), from.receivers.end());
  group.weights.resize(group.members.size());
  if (round_->phase > 0) return group;
  // One order for all, so that a run with one group does not depend on the shuffle.
  std::vector<size_t> order(group.members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return group.members[a] < group.members[b]; });
  Group sorted{index, {}, {}, {}, 0};
  for (size_t i : order) {
    sorted.members.push_back(group.members[i]);
    sorted.weights.push_back(group.weights[i]);
  }
  return sorted;
}

void Meeting::start_group(Group& group, double now) {
  Round& round = *round_;
  group.attempt = round.attempts++;
  reinstate_reducers(group.members);
  std::erase_if(round.received, [&](const Received& one) { return group.contains(one.to); });
  std::vector<Link> links;
  double slowest = kTypicalRate;
  for (size_t i = 0; i < group.members.size(); ++i) {
    links.push_back(link_of(peers_[static_cast<size_t>(group.members[i])]));
    links.back().gives = group.weights[i] > 0;
    slowest =
        std::min({slowest, links.back().upload.value_or(slowest), links.back().download.value_or(slowest)});
  }
  const std::vector<double> shares = balance_links(links).shares;
  group.parts = integer_parts(options_.elements, shares, kLeastPart);
  const double bytes = 4.0 * static_cast<double>(options_.elements) * static_cast<double>(links.size());
  round.ends = std::max(round.ends, now + kRoundPatience * options_.timeout + 4 * bytes / slowest);
  for (size_t i = 0; i < group.members.size(); ++i) {
    Peer& peer = peers_[static_cast<size_t>(group.members[i])];
    peer.share =
        static_cast<double>(group.parts[i]) / static_cast<double>(std::max<int64_t>(1, options_.elements));
    round.complete.erase(peer.number);
    round.incomplete.erase(peer.number);
    peer.wanted.reset();
    reply(peer.link, round_for(peer, group));
  }
}

// If all who could sum have been relieved of it, they try again. False: none of them accepts connections.
bool Meeting::reinstate_reducers(const std::vector<int>& members) {
  if (std::any_of(members.begin(), members.end(), [&](int number) { return can_sum(number); })) return true;
  bool any = false;
  for (int number : members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.client_only = peer.address.empty();
    any = any || !peer.client_only;
  }
  return any;
}

Json Meeting::round_for(const Peer& peer, const Group& group) const {
  Json members = Json::array();
  int64_t begin = 0;
  for (size_t i = 0; i < group.members.size(); ++i) {
    const Peer& other = peers_[static_cast<size_t>(group.members[i])];
    members.push_back({{"peer", other.number},
                       {"name", short_name(other.key)},
                       {"address", other.address},
                       {"weight", group.weights[i]},
                       {"begin", begin},
                       {"count", group.parts[i]},
                       {"send_token", pair_token(group.attempt, peer.number, other.number)},
                       {"receive_token", pair_token(group.attempt, other.number, peer.number)}});
    begin += group.parts[i];
  }
  return {{"type", "average"},
          {"epoch", epoch_},
          {"phase", round_->phase},
          {"attempt", group.attempt},
          {"self", peer.number},
          {"elements", options_.elements},
          {"robust", to_string(round_->phase == 0 ? options_.robust : Robust::kNone)},
          {"suspects", options_.suspects},
          {"seconds", round_->ends - round_->begun},
          {"patience", (round_->ends - round_->begun) *
                           (options_.group_size > 0 || round_->groups.size() > 1 ? kOthersRounds : 1)},
          {"members", members}};
}

}  // namespace yoke::collab
