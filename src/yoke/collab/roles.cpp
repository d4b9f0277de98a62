#include "yoke/collab/roles.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::collab {
namespace {

constexpr size_t kMostSubsets = 8;   // peers, up to which all choices are tried
constexpr size_t kMostChanged = 32;  // beyond, single changes are not tried
constexpr double kGain = 1 - 1e-9;   // a choice must be this much faster to be another one
constexpr double kSlowLink = 2;      // seconds and times that an upload makes averaging slower

double samples_per_s(const std::vector<PeerPower>& peers, const std::vector<bool>& computes) {
  double known = 0, count = 0, sum = 0;
  for (const PeerPower& peer : peers) {
    known += peer.samples_per_s;
    count += peer.samples_per_s > 0;
  }
  for (size_t i = 0; i < peers.size(); ++i)
    if (computes[i])
      sum += peers[i].samples_per_s > 0 ? peers[i].samples_per_s : known / std::max(1.0, count);
  return sum;
}

bool knows_links(const std::vector<PeerPower>& peers) {
  return std::any_of(peers.begin(), peers.end(), [](const PeerPower& peer) { return peer.upload; }) &&
         std::any_of(peers.begin(), peers.end(), [](const PeerPower& peer) { return peer.download; });
}

bool knows_speeds(const std::vector<PeerPower>& peers) {
  return std::any_of(peers.begin(), peers.end(),
                     [](const PeerPower& peer) { return peer.samples_per_s > 0; });
}

class Search {
 public:
  Search(const std::vector<PeerPower>& peers, const StepWork& work)
      : peers_(peers), work_(work), best_(roles_with(peers, work, std::vector<bool>(peers.size(), true))) {}

  const Roles& best() const { return best_; }

  void try_all() {
    for (uint64_t subset = 1; subset + 1 < uint64_t{1} << peers_.size(); ++subset) {
      std::vector<bool> computes;
      for (size_t i = 0; i < peers_.size(); ++i) computes.push_back((subset >> i & 1) != 0);
      attempt(computes);
    }
  }

  // They wait until the others' speed shows what their samples are worth.
  void leave_out_slow_uploads() {
    std::vector<bool> computes = best_.computes;
    for (size_t one : order_by([](const PeerPower& peer) { return peer.upload.value_or(1e300); })) {
      computes[one] = false;
      if (std::count(computes.begin(), computes.end(), true) == 0) return;
      Roles roles = roles_with(peers_, work_, computes);
      if (kSlowLink * roles.average_seconds < best_.average_seconds &&
          kSlowLink + roles.average_seconds < best_.average_seconds)
        best_ = std::move(roles);
    }
  }

  // Without those with the slowest uploads, processors, …; then one change after the other.
  void try_likely() {
    leave_out_by([](const PeerPower& peer) { return peer.upload.value_or(1e300); });
    leave_out_by([](const PeerPower& peer) { return peer.samples_per_s; });
    leave_out_by([](const PeerPower& peer) { return peer.samples_per_s * peer.upload.value_or(1e300); });
    leave_out_by([](const PeerPower& peer) { return peer.samples_per_s / peer.upload.value_or(1e300); });
    if (peers_.size() > kMostChanged) return;
    add_one_by_one();
    for (size_t changes = 0; changes < peers_.size(); ++changes)
      if (!try_changes(best_.computes)) break;
  }

 private:
  bool attempt(const std::vector<bool>& computes) {
    if (std::count(computes.begin(), computes.end(), true) == 0) return false;
    Roles roles = roles_with(peers_, work_, computes);
    if (roles.seconds() >= kGain * best_.seconds()) return false;
    best_ = std::move(roles);
    return true;
  }

  template <class Value>
  std::vector<size_t> order_by(Value&& value) const {
    std::vector<size_t> order(peers_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return value(peers_[a]) < value(peers_[b]); });
    return order;
  }

  template <class Value>
  void leave_out_by(Value&& value) {
    std::vector<bool> computes(peers_.size(), true);
    for (size_t one : order_by(value)) {
      computes[one] = false;
      attempt(computes);
    }
  }

  // Starting with nobody, always the peer with which the step is fastest.
  void add_one_by_one() {
    std::vector<bool> computes(peers_.size());
    for (size_t count = 0; count < peers_.size(); ++count) {
      size_t next = peers_.size();
      double least = 0;
      for (size_t i = 0; i < peers_.size(); ++i) {
        if (computes[i]) continue;
        computes[i] = true;
        const double seconds = roles_with(peers_, work_, computes).seconds();
        computes[i] = false;
        if (next < peers_.size() && seconds >= least) continue;
        next = i;
        least = seconds;
      }
      computes[next] = true;
      attempt(computes);
    }
  }

  // One peer, or one of each role.
  bool try_changes(std::vector<bool> computes) {
    bool better = false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      for (size_t k = i; k < peers_.size(); ++k) {
        if (k != i && computes[i] == computes[k]) continue;
        std::vector<bool> changed = computes;
        changed[i].flip();
        if (k != i) changed[k].flip();
        better = attempt(changed) || better;
      }
    }
    return better;
  }

  const std::vector<PeerPower>& peers_;
  const StepWork& work_;
  Roles best_;
};

}  // namespace

const std::vector<std::string>& role_policies() {
  static const std::vector<std::string> names = {"auto", "shares", "equal"};
  return names;
}

RolePolicy parse_role_policy(const std::string& name) {
  const auto at = std::find(role_policies().begin(), role_policies().end(), name);
  YOKE_CHECK(at != role_policies().end(), "roles '{}'", name);
  return static_cast<RolePolicy>(at - role_policies().begin());
}

Roles roles_with(const std::vector<PeerPower>& peers, const StepWork& work,
                 const std::vector<bool>& computes) {
  YOKE_CHECK(computes.size() == peers.size() && std::count(computes.begin(), computes.end(), true) > 0,
             "roles of {} peers, nobody computes", peers.size());
  std::vector<Link> links;
  for (size_t i = 0; i < peers.size(); ++i)
    links.push_back({peers[i].upload, peers[i].download, peers[i].accepts, computes[i]});
  Balance balance = balance_links(links);
  const double speed = samples_per_s(peers, computes);
  return {computes, std::move(balance.shares), speed > 0 ? work.samples / speed : 0,
          balance.time * work.bytes};
}

Roles choose_roles(const std::vector<PeerPower>& peers, const StepWork& work) {
  Search search(peers, work);
  if (!knows_links(peers)) return search.best();
  if (!knows_speeds(peers))
    search.leave_out_slow_uploads();
  else if (peers.size() <= kMostSubsets)
    search.try_all();
  else
    search.try_likely();
  return search.best();
}

}  // namespace yoke::collab
