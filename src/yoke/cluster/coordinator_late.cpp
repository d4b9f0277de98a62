// Ranks that join a running job without an epoch: their numbers follow those of the others, which go on.
//
// A program asks for the next number and joins with it. Of two that ask at once one gets there first; the
// other is refused and asks again.
#include <fmt/core.h>

#include "yoke/base/clock.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {

std::string Coordinator::Impl::why_no_seat() const {
  if (failure) return "the job has failed: " + failure->what;
  if (!refusal.empty()) return refusal;
  if (!formed) return "the job is still forming: wait until all of its ranks have joined";
  if (options.late_ranks == 0)
    return "this job has no place for another rank: it was started with a fixed number of them";
  if (roll.late() >= options.late_ranks)
    return fmt::format("all {} places for ranks that join later have been used", options.late_ranks);
  if (has_ended(0)) return "the job has ended or is ending";
  return "";
}

void Coordinator::Impl::on_seat(Client& client, uint64_t request) {
  const std::string why = why_no_seat();
  if (!why.empty()) return reply(client, request, {{"error", why}});
  reply(client, request, {{"rank", roll.world_size()}, {"at_start", roll.world_size() - roll.late()}});
}

bool Coordinator::Impl::takes_seat(const Member& member, int world_size) const {
  const int next = roll.world_size();
  return !elastic() && why_no_seat().empty() && member.rank == next && world_size == next + 1;
}

void Coordinator::Impl::add_late(Member member) {
  options.expendable.resize(ranks.size(), false);
  options.expendable.push_back(true);
  ++options.world_size;
  ranks.emplace_back();
  ranks.back().last_seen = now_seconds();
  roll.add(std::move(member));
}

}  // namespace yoke::cluster
