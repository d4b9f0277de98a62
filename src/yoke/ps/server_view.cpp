#include "yoke/ps/server_view.h"

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"

namespace yoke::ps {

ServerView::ServerView(const comm::Messenger& messenger, int first_server, int servers, int replicas,
                       int at_start, const ReplicaRanks& ranks, const std::vector<std::string>& machines)
    : messenger_(messenger),
      first_server_(first_server),
      changes_(replicas > 0 || at_start > 0),
      ranks_(ranks),
      servers_(servers, replicas, at_start, machines) {}

int ServerView::peer_of(int home) const {
  std::lock_guard lock(mutex_);
  if (!changes_) return first_server_ + home;
  const int server = servers_.owner(home);
  if (server == Succession::kNobody) throw CommError("{}", describe(home));
  return first_server_ + server;
}

int ServerView::owner(int home) const {
  std::lock_guard lock(mutex_);
  return servers_.owner(home);
}

// The server that serves instead has greeted this worker before (server_welcome.cpp).
void ServerView::learn(const comm::Message& moved) {
  const auto move = moved.get_head<Succession::Move>();
  std::lock_guard lock(mutex_);
  auto is_server = [&](int64_t server) { return server >= 0 && server < servers_.servers(); };
  if (!changes_ || !is_server(move.home) || !is_server(move.from) || !is_server(move.to))
    throw CommError("home {} moves from server {} to {}: this job has {}", move.home, move.from, move.to,
                    servers_.servers());
  if (move.number <= servers_.last_move(static_cast<int>(move.home)).number) return;
  servers_.add(static_cast<int>(move.to));
  servers_.apply(move);
}

GoneReply ServerView::judge(int asker, const comm::Message& question) {
  const int64_t suspected = question.get_head<AskGoneHead>().server;
  const int own = asker - first_server_;
  std::lock_guard lock(mutex_);
  if (suspected < 0 || suspected >= servers_.servers() || suspected == own)
    throw CommError("server {} has lost server {}: this job has {}", own, suspected, servers_.servers());
  const auto other = static_cast<int>(suspected);
  if (servers_.is_lost(other) || messenger_.is_lost(first_server_ + other)) return {GoneReply::kGone};
  complaints_.insert({own, other});
  const bool both = complaints_.contains({other, own});
  return {both && own > other ? GoneReply::kEnd : GoneReply::kWait};
}

bool ServerView::moved(int peer) {
  std::lock_guard lock(mutex_);
  const int server = peer - first_server_;
  if (!changes_ || server < 0) return false;
  if (!servers_.is_lost(server) && !messenger_.is_lost(peer)) return false;
  if (!servers_.is_absent(server)) servers_.lose(server);
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
