#include "yoke/ps/server_view.h"

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"

namespace yoke::ps {

ServerView::ServerView(const comm::Messenger& messenger, int first_server, int servers, int replicas,
                       const ReplicaRanks& ranks)
    : messenger_(messenger), first_server_(first_server), ranks_(ranks), servers_(servers, replicas) {}

int ServerView::peer_of(int home) const {
  std::lock_guard lock(mutex_);
  if (servers_.replicas() == 0) return first_server_ + home;
  const int server = servers_.owner(home);
  if (server == Succession::kNobody) throw CommError("{}", describe(home));
  return first_server_ + server;
}

int ServerView::owner(int home) const {
  std::lock_guard lock(mutex_);
  return servers_.owner(home);
}

bool ServerView::moved(int peer) {
  std::lock_guard lock(mutex_);
  const int server = peer - first_server_;
  if (servers_.replicas() == 0 || server < 0) return false;
  if (!servers_.is_lost(server) && !messenger_.is_lost(peer)) return false;
  servers_.lose(server);
  return true;
}

std::string ServerView::broken() const {
  std::lock_guard lock(mutex_);
  const int orphan = servers_.orphan();
  return orphan == Succession::kNobody ? "" : describe(orphan);
}

int64_t ServerView::lost() const {
  std::lock_guard lock(mutex_);
  return servers_.lost();
}

std::string ServerView::describe(int orphan) const {
  return lost_with_copies(orphan, servers_, ranks_);
}

}  // namespace yoke::ps
