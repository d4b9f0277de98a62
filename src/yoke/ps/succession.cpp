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

int Succession::living_before(int home, int server) const {
  int living = 0;
  for (int i = 0; i < place(home, server); ++i) living += is_lost(at(home, i)) ? 0 : 1;
  return living;
}

// Without copies nobody takes over.
int Succession::owner(int home) const {
  for (int i = 0; i < (replicas_ > 0 ? servers() : 1); ++i)
    if (!is_lost(at(home, i))) return at(home, i);
  return kNobody;
}

int Succession::next(int home, int server) const {
  if (living_before(home, server) >= replicas_) return kNobody;
  for (int i = place(home, server) + 1; i < servers(); ++i)
    if (!is_lost(at(home, i))) return at(home, i);
  return kNobody;
}

int Succession::copies(int home) const {
  return owner(home) == kNobody ? 0 : std::min<int>(replicas_, servers() - static_cast<int>(lost()) - 1);
}

std::vector<int> Succession::lost_before_owner(int home) const {
  std::vector<int> list;
  for (int i = 0; i < servers() && is_lost(at(home, i)); ++i) list.push_back(at(home, i));
  return list;
}

int Succession::orphan() const {
  for (int home = 0; home < servers(); ++home)
    if (owner(home) == kNobody) return home;
  return kNobody;
}

}  // namespace yoke::ps
