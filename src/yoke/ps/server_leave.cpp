// The part of Server that leaves a running job.
//
// With copies, other servers hold everything, so leaving is like being lost at a moment at which nothing is
// open: requests of workers wait, the changes that are under way reach the copies, and the server ends.
// Workers send the requests that were not answered to the server that takes over. Without copies the homes
// move to the other servers first (server_move.cpp).
#include <algorithm>

#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

using comm::Message;

void Server::ask_to_leave(std::function<void(const std::string& refusal)> answer) {
  messenger_.run_soon([this, answer = std::move(answer)] {
    const std::string refusal = why_not_leave();
    answer(refusal);
    if (!refusal.empty()) return;
    leaving_ = true;
    if (options_.replicas == 0) return hand_everything_over();
    finish_leaving();
  });
}

std::string Server::why_not_leave() const {
  const std::string name = name_of(own_index());
  if (!is_copied())
    return fmt::format(
        "{} has the only copy of its parameters (ps.replicas = 0). Start the job with ps.replicas = 1 or "
        "more, or with ps.max_servers, to let servers leave",
        name);
  if (leaving_) return fmt::format("{} is leaving already", name);
  if (awaits_welcome_) return fmt::format("{} is still joining", name);
  if (ended_) return fmt::format("{} ends with the job, which has done its last update", name);
  if (succession_.living() <= 1)
    return fmt::format("{} is the last server: nobody is left to take over its parameters", name);
  for (const auto& share : shares_) {
    if (options_.replicas > 0 && share->serves && (share->copying || !share->chain->passes_on()))
      return fmt::format(
          "the parameters of server {} have no complete copy yet: one is being made. Try again "
          "when `yoke ps top` shows replicas",
          share->home);
  }
  return "";
}

// Each home to the server that has the fewest then. The first home goes last: the scheduler goes with it.
void Server::hand_everything_over() {
  std::vector<size_t> load(static_cast<size_t>(options_.servers), 0);
  for (int server = 0; server < options_.servers; ++server)
    load[static_cast<size_t>(server)] = succession_.homes_of(server).size();
  std::vector<int> homes = succession_.homes_of(own_index());
  std::reverse(homes.begin(), homes.end());
  moves_.clear();
  for (int home : homes) {
    int to = Succession::kNobody;
    for (int server = 0; server < options_.servers; ++server) {
      if (server == own_index() || succession_.is_lost(server)) continue;
      if (to < 0 || load[static_cast<size_t>(server)] < load[static_cast<size_t>(to)]) to = server;
    }
    if (to == Succession::kNobody) break;
    ++load[static_cast<size_t>(to)];
    moves_.push_back({home, own_index(), to, 0});
  }
  if (homes.empty()) {
    gives_up_last_ = true;
    return finish_leaving();
  }
  if (!moves_.empty()) return next_move();
  leaving_ = false;
  say(fmt::format("{} stays: no other server is left", name_of(own_index())));
}

// Without copies it ends only after everybody has heard of the last move: who has answered has read all that
// was sent before.
void Server::finish_leaving() {
  for (const auto& share : shares_)
    if (share->chain->unsafe() > 0)
      return share->chain->when_safe(share->chain->last(), [this] { finish_leaving(); });
  if (options_.replicas > 0) return leave_now();
  const auto left = std::make_shared<int>(1);
  for (int peer = 0; peer < messenger_.size(); ++peer) {
    if (peer == messenger_.rank() || messenger_.is_lost(peer)) continue;
    ++*left;
    Message hello;
    hello.kind = kHello;
    messenger_.ask_then(peer, hello, {}, Deadline::after(options_.timeout),
                        [this, left](const Message&, const std::string&) {
                          if (--*left == 0) leave_now();
                        });
  }
  if (--*left == 0) leave_now();
}

void Server::leave_now() {
  fault::at(fault::Point::kPsLeave);
  std::lock_guard lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

}  // namespace yoke::ps
