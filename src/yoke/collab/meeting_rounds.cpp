// Averaging rounds: votes, and what happens after a failure.
#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr int kMostAttempts = 6;
constexpr size_t kMostLosses = 100'000;
}  // namespace

bool Meeting::Group::contains(int number) const {
  return std::count(members.begin(), members.end(), number) > 0;
}

Meeting::Group* Meeting::group_with(int number) {
  if (!round_) return nullptr;
  auto at = std::find_if(round_->groups.begin(), round_->groups.end(),
                         [&](const Group& group) { return group.contains(number); });
  return at == round_->groups.end() ? nullptr : &*at;
}

void Meeting::leave_round(int number) {
  std::erase(round_->members, number);
  round_->complete.erase(number);
  round_->incomplete.erase(number);
  Group* group = group_with(number);
  if (group == nullptr) return;
  const auto at = std::find(group->members.begin(), group->members.end(), number) - group->members.begin();
  group->members.erase(group->members.begin() + at);
  group->weights.erase(group->weights.begin() + at);
}

void Meeting::result(Peer& peer, const Json& message, double now) {
  const int64_t epoch = integer_field(message, "epoch", 0, INT64_MAX);
  const int64_t attempt = integer_field(message, "attempt", 0, INT32_MAX);
  const Group* group = group_with(peer.number);
  if (group == nullptr || epoch != epoch_ || attempt != group->attempt) {
    peer.discarded = false;
    take_back(peer);
    return reply(peer.link, restart_reply(peer));
  }
  const Json& losses = list_field(message, "lost", 1024);
  for (const Json& lost : losses)
    round_->blamed[static_cast<int>(integer_field(lost, "peer", 0, INT32_MAX))][peer.number] =
        text_field(lost, "why", 1024);
  for (const Json& outlier : list_field(message, "outliers", 1024))
    round_->outliers[static_cast<int>(integer_field(outlier, "peer", 0, INT32_MAX))][peer.number] = {
        number_field(outlier, "score"), number_field(outlier, "distance")};
  if (const double size = number_field(message, "usual_size"); size > 0)
    round_->usual_sizes[peer.number] = size;
  take_received(peer, list_field(message, "received", 1024));
  // In later phases groups must agree: a value that is missing in one of them is not left out.
  const bool complete = boolean_field(message, "complete") && (round_->phase == 0 || losses.empty());
  (complete ? round_->complete : round_->incomplete).insert(peer.number);
  decide_if_all_voted(now);
}

bool Meeting::all_voted(const Group& group) const {
  return std::all_of(group.members.begin(), group.members.end(), [&](int number) {
    return round_->complete.contains(number) || round_->incomplete.contains(number);
  });
}

// In later phases the groups of a bundle are made anew together.
bool Meeting::can_try_again(const Group& group) const {
  return std::all_of(round_->groups.begin(), round_->groups.end(), [&](const Group& other) {
    const bool concerned = &other == &group || (round_->phase > 0 && other.bundle == group.bundle);
    return !concerned || all_voted(other);
  });
}

void Meeting::decide_if_all_voted(double now) {
  if (round_->members.empty()) {
    round_.reset();  // their samples are leased again
    return;
  }
  bool done = true;
  for (Group& group : round_->groups) {
    const bool complete = std::all_of(group.members.begin(), group.members.end(),
                                      [&](int number) { return round_->complete.contains(number); });
    done = done && complete;
    if (complete || !can_try_again(group)) continue;
    try_again(group, now);
    if (round_) decide_if_all_voted(now);
    return;
  }
  if (done) finish_phase(now);
}

void Meeting::finish_phase(double now) {
  learn_from_round();
  if (round_->phase == 0) judge_outliers();
  round_->received.clear();
  for (GridClass& one : round_->classes) {
    std::erase_if(one.members, [&](int number) {
      return std::count(round_->members.begin(), round_->members.end(), number) == 0;
    });
    if (one.members.empty() && round_->phase == 0)
      one.weight = 0;  // as a rule it was gone before it gave all
  }
  round_->classes = merged(round_->classes, round_->bundles);
  std::erase_if(round_->classes, [](const GridClass& one) { return one.members.empty(); });
  if (round_->classes.size() <= 1) return commit(now);
  ++round_->phase;
  start_phase(now);
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
  roles_are_old_ = true;
  const double loss = loss_sum_ / static_cast<double>(std::max<int64_t>(1, done_));
  if (losses_.size() < kMostLosses) losses_.push_back(loss);
  previous_ = {epoch_, begun_at_};
  begun_at_ = next_sample_;
  ++epoch_;
  over_ = epoch_ >= options_.steps;
  over_since_ = now;
  const std::vector<int> members = round_->members;
  round_.reset();
  forget_samples();  // what a peer lost during the round had is not repeated: the position moves on
  for (int number : members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    peer.epoch = epoch_;
    peer.fetches = 0;
    peer.heard = now;
  }
  for (int number : members)
    if (!peers_[static_cast<size_t>(number)].excluded.empty())
      exclude(peers_[static_cast<size_t>(number)], now);
  for (int number : members) {
    Peer& peer = peers_[static_cast<size_t>(number)];
    if (!peer.excluded.empty()) continue;
    Json message = {{"type", "commit"}, {"epoch", epoch_}, {"loss", loss}};
    if (!over_ && working() >= options_.min_peers && grant(peer, now))
      message["lease"] = {{"first", peer.lease->first}, {"count", peer.lease->count}};
    reply(peer.link, std::move(message));
  }
}

void Meeting::forget_samples() {
  done_ = leased_ = 0;
  loss_sum_ = 0;
  full_since_ = -1;
  returned_.clear();
  for (Peer& peer : peers_) {
    peer.done.clear();
    peer.samples = 0;
    peer.lease.reset();
  }
}

// The peer that most others blame sums no more; if it did not sum, it is left out.
void Meeting::blame_worst(Group& group) {
  int worst = -1;
  size_t most = 0;
  for (auto& [number, blames] : round_->blamed) {
    if (group.contains(number) && blames.size() >= most) {  // of equals the newest: the first started the run
      worst = number;
      most = blames.size();
    }
  }
  if (worst < 0) return;
  Peer& peer = peers_[static_cast<size_t>(worst)];
  const std::string why = round_->blamed[worst].begin()->second;
  round_->blamed.erase(worst);
  if (!peer.client_only && peer.share > 0) {
    peer.client_only = true;
    log::warn("collab: step {}: peer {} ({}) sums no more: {}", epoch_, worst, short_name(peer.key), why);
  } else {
    log::warn("collab: step {}: peer {} ({}) is left out: {}", epoch_, worst, short_name(peer.key), why);
    drop(peer, why);
    peer.discarded = false;
    reply(peer.link, restart_reply(peer));
  }
}

void Meeting::try_again(Group& group, double now) {
  ++repeated_;
  const bool alone = round_->groups.size() == 1 && round_->phase == 0;
  const size_t bundle = group.bundle;
  if (++round_->failures >= kMostAttempts) {
    log::warn("collab: step {}: averaging failed {} times; its samples are computed again", epoch_,
              round_->failures);
    return give_up_round();
  }
  blame_worst(group);
  const bool somebody_sums = std::any_of(group.members.begin(), group.members.end(), [&](int number) {
    return !peers_[static_cast<size_t>(number)].address.empty();
  });
  if (alone &&
      (done_ < options_.target_batch || !somebody_sums)) {  // samples or reducers are missing: first those
    const std::vector<int> members = round_->members;
    round_.reset();
    for (int number : members) reply(peers_[static_cast<size_t>(number)].link, {{"type", "wait"}});
  } else if (round_->phase > 0) {
    regroup(bundle, now);
  } else if (somebody_sums) {
    start_group(group, now);
  } else {
    give_up_round();
  }
}

// Those that have voted wait for a reply; the others get theirs when they vote.
void Meeting::give_up_round() {
  const std::vector<int> members = round_->members;
  const std::set<int> complete = round_->complete, incomplete = round_->incomplete;
  round_.reset();
  for (int number : members) {
    if (!complete.contains(number) && !incomplete.contains(number)) continue;
    Peer& peer = peers_[static_cast<size_t>(number)];
    take_back(peer);
    reply(peer.link, restart_reply(peer));
  }
}

// A peer that is gone has others with the same value, which take its place.
void Meeting::regroup(size_t bundle, double now) {
  std::vector<int> members;
  for (const Group& group : round_->groups)
    if (group.bundle == bundle) members.insert(members.end(), group.members.begin(), group.members.end());
  std::erase_if(round_->groups, [&](const Group& group) { return group.bundle == bundle; });
  std::vector<size_t> which;
  for (size_t one : round_->bundles[bundle].classes) {
    std::vector<int>& present = round_->classes[one].members;
    std::erase_if(present,
                  [&](int number) { return std::count(members.begin(), members.end(), number) == 0; });
    if (!present.empty()) which.push_back(one);
  }
  if (which.empty()) return;
  if (!reinstate_reducers(members)) return give_up_round();
  GridBundle made = grid_bundle(round_->classes, which, [&](int number) { return can_sum(number); });
  const size_t first = round_->groups.size();
  for (const GridGroup& group : made.groups) round_->groups.push_back(group_of(made, bundle, group));
  round_->bundles[bundle] = std::move(made);
  for (size_t i = first; i < round_->groups.size(); ++i) start_group(round_->groups[i], now);
}

}  // namespace yoke::collab
