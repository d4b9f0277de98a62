// A coordinator that is started again, or on another machine, takes up the job of one that is gone.
//
// It knows nothing of that job: the ranks do. Each returns with the epoch it was in, which names all members.
// The first to return says whom to wait for; those that have not returned a few seconds later are lost, like
// ranks of any epoch, and the others start the next one. Somebody who returns later joins like a new rank.
#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {

void Coordinator::Impl::on_return(Client& client, uint64_t request, const control::Note& note) {
  if (!elastic()) throw CommError("'return' in a job that is not elastic");
  if (client.entered || client.regroup) throw CommError("a second return on one connection");
  const Epoch theirs = control::read_epoch(note.head);
  nlohmann::json described = control::to_json(theirs.members[static_cast<size_t>(theirs.rank)]);
  described["address"] = control::text(note.head, "address", 512);
  Member self = control::read_member(described);
  if (self.seat != client.seat)
    throw CommError("a return as rank {} on a connection of rank {}", self.seat, client.seat);
  const std::string refused = failure ? "the job has failed: " + failure->what : refusal;
  if (!refused.empty()) return reply(client, request, {{"error", refused}});
  client.joining = std::move(self);
  client.regroup = request;
  if (!formed || (awaits_returns() && theirs.number > epoch.number)) take_up(theirs);
  drop_predecessor(client);
  seat_returned(client);
  if (!client.entered) tell_of_joiner();
  advance_epoch();
}

void Coordinator::Impl::take_up(const Epoch& running) {
  const auto size = static_cast<int>(running.members.size());
  log::warn("taking up a running job in epoch {}: waiting {:.0f} s for its {} rank{} to return",
            running.number, options.return_timeout, size, size == 1 ? "" : "s");
  formed = regrouping = true;
  epoch = running;
  regroup_started = now_seconds();
  returns_end = regroup_started + options.return_timeout;
  if (epoch_cause.kind.empty()) {
    epoch_cause.kind = "lost";
    epoch_cause.what = "the coordinator was lost";
  }
  options.world_size = size;
  roll = Roll(size);
  for (const Member& member : running.members) {
    roll.enter(member, size);
    next_seat = std::max(next_seat, member.seat + 1);
  }
  ranks.assign(running.members.size(), {});
  counted.assign(running.members.size(), false);
  for (RankState& rank : ranks) rank.awaited = true;
  // Ranks that were about to form a new job join this one; those that returned from an earlier epoch are its
  // members, or join it.
  for (auto& [fd, client] : clients) {
    client->entered = false;
    if (client->regroup) seat_returned(*client);
    if (!client->regroup && client->joining) replace_awaited(rank_of_seat(client->seat));
  }
}

void Coordinator::Impl::seat_returned(Client& client) {
  const int rank = rank_of_seat(client.seat);
  if (rank < 0 || !ranks[static_cast<size_t>(rank)].awaited) return;
  RankState& state = ranks[static_cast<size_t>(rank)];
  state = {};
  state.last_seen = now_seconds();
  client.rank = rank;
  client.entered = true;
}

// A rank that lost only its connection, which may still seem to be open here.
void Coordinator::Impl::drop_predecessor(const Client& client) {
  for (auto& [fd, other] : clients) {
    if (other.get() == &client || other->seat != client.seat || lost.contains(fd)) continue;
    if (other->entered || other->joining) lose(*other, "has returned on another connection");
  }
}

// A new process has the seat of a rank that has not returned: its launcher has ended, and it with it.
void Coordinator::Impl::replace_awaited(int rank) {
  if (rank < 0 || !ranks[static_cast<size_t>(rank)].awaited) return;
  ranks[static_cast<size_t>(rank)].awaited = false;
  ranks[static_cast<size_t>(rank)].lost = true;
  count_losses();
}

bool Coordinator::Impl::awaits_returns() const {
  for (const RankState& rank : ranks)
    if (rank.awaited && !rank.lost) return true;
  return false;
}

void Coordinator::Impl::look_at_returns(double now) {
  if (!awaits_returns() || now <= returns_end + own_lateness.allowance()) return;
  for (RankState& rank : ranks) rank.lost = rank.lost || rank.awaited;
  count_losses();
  advance_epoch();
}

}  // namespace yoke::cluster
