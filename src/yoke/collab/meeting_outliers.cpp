// Peers whose gradients stay far from those of the others, where collab.robust is on.
//
// A reducer measures how far a gradient is from the result. A peer that lies is far out, but so is an honest
// one for three reasons, all of which are allowed for:
//
//   few samples    its gradient is noisier, with the inverse square root of their number
//   other data     it stays far out once the others have learnt theirs; yet its gradient is no larger than
//                  gradients were before they had
//   hard samples   they move from peer to peer; a lie stays
#include <algorithm>
#include <cmath>

#include "yoke/base/log.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"

namespace yoke::collab {
namespace {

constexpr double kFar = 10;      // times the median distance, and the size of a usual gradient
constexpr int kFarSteps = 10;    // in a row
constexpr size_t kFewest = 4;    // contributors: fewer have no majority that could be believed
constexpr size_t kLiarsPer = 3;  // at most one of so many is excluded: the others outvote it

// Of two the lower.
double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

void Meeting::judge_outliers() {
  for (const auto& [number, by_others] : round_->outliers) {
    if (number >= static_cast<int>(peers_.size())) continue;
    std::vector<double> scores;
    for (const auto& [by, outlier] : by_others) scores.push_back(outlier.score);
    peers_[static_cast<size_t>(number)].outlier = middle(std::move(scores));
  }
  if (options_.robust == Robust::kNone) return;
  std::vector<double> sizes;
  for (const auto& [by, size] : round_->usual_sizes) sizes.push_back(size);
  if (!sizes.empty()) usual_size_ = std::max(usual_size_, middle(std::move(sizes)));
  for (const Group& group : round_->groups) judge_outliers(group);
}

// A reducer alone cannot accuse where there are others, nor does a peer judge itself.
void Meeting::judge_outliers(const Group& group) {
  struct Contributor {
    Peer* peer;
    double score, distance, weight;
  };
  std::vector<Contributor> all;
  std::vector<double> weights;
  for (size_t i = 0; i < group.members.size(); ++i) {
    std::vector<double> scores, distances;
    for (const auto& [by, outlier] : round_->outliers[group.members[i]]) {
      if (by == group.members[i] || !group.contains(by)) continue;
      scores.push_back(outlier.score);
      distances.push_back(outlier.distance);
    }
    if (scores.empty() || !(group.weights[i] > 0)) continue;
    weights.push_back(group.weights[i]);
    all.push_back({&peers_[static_cast<size_t>(group.members[i])], middle(std::move(scores)),
                   middle(std::move(distances)), weights.back()});
  }
  if (all.size() < kFewest) return;
  const double usual_weight = middle(std::move(weights));
  const auto is_far = [&](const Contributor& one) {
    const double noise = std::sqrt(std::min(1.0, one.weight / usual_weight));
    return one.score * noise > kFar && one.distance * noise > kFar * usual_size_;
  };
  const auto far = static_cast<size_t>(std::count_if(all.begin(), all.end(), is_far));
  for (const Contributor& one : all) {
    one.peer->far_steps = kLiarsPer * far <= all.size() && is_far(one) ? one.peer->far_steps + 1 : 0;
    if (one.peer->far_steps < kFarSteps) continue;
    one.peer->excluded = fmt::format(
        "is excluded from the run: for {} steps its gradients were more than {:.0f} times as far from those "
        "of "
        "the others as usual (now {:.0f} times; collab.robust = {})",
        kFarSteps, kFar, one.score, to_string(options_.robust));
  }
}

void Meeting::exclude(Peer& peer, double now) {
  const int link = peer.link;
  log::warn("collab: step {}: peer {} ({} on '{}') {}", epoch_, peer.number, short_name(peer.key), peer.host,
            peer.excluded);
  drop(peer, peer.excluded);
  reply(link, {{"type", "refused"}, {"why", fmt::format("this peer {}", peer.excluded)}}, /*close=*/true);
  closed(link, now);
}

}  // namespace yoke::collab
