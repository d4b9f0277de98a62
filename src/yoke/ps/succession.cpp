#include "yoke/ps/succession.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cluster/machine_order.h"

namespace yoke::ps {

namespace {

// The servers of the start, by home: itself, then those that are a step further by machine, and further. Each
// server is in each place of one home's order, so all hold as many copies.
std::vector<std::vector<int>> orders_of(const std::vector<std::string>& machines) {
  const cluster::MachineOrder list = cluster::order_by_machine(machines);
  const size_t size = list.ranks.size();
  std::vector<std::vector<int>> orders(size);
  for (size_t home = 0; home < size; ++home) {
    std::vector<int>& order = orders[static_cast<size_t>(list.ranks[home])];
    std::vector<bool> listed(size, false);
    for (size_t turn = 0; turn < size; ++turn)
      for (size_t at = (home + turn) % size; !listed[at]; at = (at + list.step) % size) {
        listed[at] = true;
        order.push_back(list.ranks[at]);
      }
  }
  return orders;
}

}  // namespace

Succession::Succession(int servers, int replicas, int at_start, const std::vector<std::string>& machines)
    : replicas_(replicas),
      lost_(static_cast<size_t>(std::max(0, servers)), false),
      absent_(lost_),
      homes_(lost_.size()) {
  const int present = at_start == 0 ? servers : at_start;
  if (replicas < 0 || (replicas > 0 && replicas >= present))
    throw ConfigError(
        "ps.replicas = {} with ps.servers = {}: copies lie on other servers, so at most {} are possible. "
        "Raise ps.servers.",
        replicas, present, std::max(0, present - 1));
  for (int server = present; server < servers; ++server)
    lost_[static_cast<size_t>(server)] = absent_[static_cast<size_t>(server)] = true;
  YOKE_CHECK(machines.empty() || static_cast<int>(machines.size()) == present, "{} machines of {} servers",
             machines.size(), present);
  const auto orders = orders_of(
      machines.empty() ? std::vector<std::string>(static_cast<size_t>(std::max(0, present))) : machines);
  for (int home = 0; home < servers; ++home) {
    Home& own = of(home);
    own.order = orders[static_cast<size_t>(home % present)];
    for (int place = present; place < servers; ++place) own.order.push_back(place);
    own.from_start.resize(lost_.size(), false);
    for (int place = 0; place <= replicas; ++place)
      own.from_start[static_cast<size_t>(own.order[static_cast<size_t>(place)])] = true;
  }
}

bool Succession::lose(int server) {
  const bool news = !is_lost(server);
  lost_[static_cast<size_t>(server)] = true;
  absent_[static_cast<size_t>(server)] = false;
  for (Home& home : homes_)
    if (home.target == server) home.target = kNobody;
  return news;
}

bool Succession::add(int server) {
  if (!is_absent(server)) return false;
  lost_[static_cast<size_t>(server)] = absent_[static_cast<size_t>(server)] = false;
  return true;
}

int Succession::living() const {
  return static_cast<int>(std::count(lost_.begin(), lost_.end(), false));
}

int64_t Succession::lost() const {
  return servers() - living() - std::count(absent_.begin(), absent_.end(), true);
}

int Succession::living_before(int home, int server) const {
  int living = 0;
  for (int one : of(home).order) {
    if (one == server) break;
    living += is_lost(one) ? 0 : 1;
  }
  return living;
}

// Without copies nobody takes over.
int Succession::owner(int home) const {
  const std::vector<int>& order = of(home).order;
  if (replicas_ == 0) return is_lost(order.front()) ? kNobody : order.front();
  for (int server : order)
    if (!is_lost(server)) return server;
  return kNobody;
}

int Succession::target(int home) const {
  const int server = of(home).target;
  return server == kNobody || is_lost(server) ? kNobody : server;
}

bool Succession::holds(int home, int server) const {
  return living_before(home, server) <= replicas_ || target(home) == server;
}

int Succession::next(int home, int server) const {
  const int before = living_before(home, server);
  if (before > replicas_) return kNobody;
  if (before == replicas_) return target(home) == server ? kNobody : target(home);
  const std::vector<int>& order = of(home).order;
  for (auto after = std::find(order.begin(), order.end(), server) + 1; after != order.end(); ++after)
    if (!is_lost(*after)) return *after;
  return kNobody;
}

int Succession::copies(int home) const {
  return owner(home) == kNobody ? 0 : std::min<int>(replicas_, living() - 1);
}

std::vector<int> Succession::lost_before_owner(int home) const {
  std::vector<int> list;
  for (int server : of(home).order) {
    if (!is_lost(server)) break;
    if (!is_absent(server)) list.push_back(server);
    if (replicas_ == 0) break;
  }
  return list;
}

int Succession::orphan() const {
  for (int home = 0; home < servers(); ++home)
    if (owner(home) == kNobody) return home;
  return kNobody;
}

bool Succession::apply(const Move& move) {
  Home& home = of(static_cast<int>(move.home));
  if (move.number <= home.last.number) return false;
  const auto from = static_cast<int>(move.from), to = static_cast<int>(move.to);
  std::erase_if(home.order, [&](int server) { return server == to || server == from; });
  home.order.insert(home.order.begin(), to);
  home.order.push_back(from);
  home.from_start[static_cast<size_t>(from)] = false;
  home.from_start[static_cast<size_t>(to)] = true;
  home.target = kNobody;
  home.last = move;
  return true;
}

std::vector<int> Succession::homes_of(int server) const {
  std::vector<int> list;
  for (int home = 0; home < servers(); ++home)
    if (owner(home) == server) list.push_back(home);
  return list;
}

}  // namespace yoke::ps
