// The part of Server that leaves a running job.
//
// Other servers hold copies of everything, so leaving is like being lost at a moment at which nothing is
// open: requests of workers wait, the changes that are under way reach the copies, and the server ends.
// Workers send the requests that were not answered to the server that takes over.
#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

void Server::ask_to_leave(std::function<void(const std::string& refusal)> answer) {
  messenger_.run_soon([this, answer = std::move(answer)] {
    const std::string refusal = why_not_leave();
    answer(refusal);
    if (!refusal.empty()) return;
    leaving_ = true;
    finish_leaving();
  });
}

std::string Server::why_not_leave() const {
  const std::string name = server_name(own_index(), options_.ranks);
  if (!is_copied())
    return fmt::format(
        "{} has the only copy of its parameters (ps.replicas = 0). Start the job with "
        "ps.replicas = 1 or more to let servers leave",
        name);
  if (leaving_) return fmt::format("{} is leaving already", name);
  if (succession_.lost() + 1 >= succession_.servers())
    return fmt::format("{} is the last server: nobody is left to take over its parameters", name);
  for (const auto& share : shares_)
    if (share->serves && (share->copying || !share->chain->passes_on()))
      return fmt::format(
          "the parameters of server {} have no complete copy yet: one is being made. Try again "
          "when `yoke ps top` shows replicas",
          share->home);
  return "";
}

void Server::finish_leaving() {
  for (const auto& share : shares_)
    if (share->chain->unsafe() > 0)
      return share->chain->when_safe(share->chain->last(), [this] { finish_leaving(); });
  fault::at(fault::Point::kPsLeave);
  std::lock_guard lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

}  // namespace yoke::ps
