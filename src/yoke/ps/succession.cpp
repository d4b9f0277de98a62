#include "yoke/ps/succession.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::ps {

Succession::Succession(int servers, int replicas)
    : replicas_(replicas), lost_(static_cast<size_t>(std::max(0, servers)), false) {
  if (replicas < 0 || (replicas > 0 && replicas >= servers))
    throw ConfigError(
        "ps.replicas = {} with ps.servers = {}: copies lie on other servers, so at most {} are possible. "
        "Raise ps.servers.",
        replicas, servers, std::max(0, servers - 1));
}

bool Succession::lose(int server) {
  const bool news = !is_lost(server);
  lost_[static_cast<size_t>(server)] = true;
  return news;
}

int64_t Succession::lost() const {
  return std::count(lost_.begin(), lost_.end(), true);
}

int Succession::first_from(int home, int place) const {
  for (; place <= replicas_; ++place) {
    const int server = (home + place) % servers();
    if (!is_lost(server)) return server;
  }
  return kNobody;
}

int Succession::copies(int home) const {
  int alive = 0;
  for (int place = 0; place <= replicas_; ++place) alive += is_lost((home + place) % servers()) ? 0 : 1;
  return std::max(0, alive - 1);
}

int Succession::orphan() const {
  for (int home = 0; home < servers(); ++home)
    if (owner(home) == kNobody) return home;
  return kNobody;
}

}  // namespace yoke::ps
