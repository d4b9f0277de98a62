// Ranks without which the job continues although they are connected.
//
// Whoever is killed closes its connections, and the others notice. A process that is stopped does not, nor
// does one on a machine that has lost its power or its network. If such a rank is expendable and others have
// what it has, it is evicted once it misses its heartbeats: the others hear of it and disconnect it, its
// launcher ends it, and if it wakes up before that, it hears that it was evicted.
//
// In an elastic job two ranks may reach the coordinator and not each other. A rank that notices ends the
// epoch with a report of kind "cut"; in the next one the members look who reaches whom, and if a link is
// still cut the coordinator evicts the fewest ranks such that the others are connected.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"
#include "yoke/cluster/link_check.h"

namespace yoke::cluster {

bool Coordinator::Impl::replaceable(size_t rank) const {
  const Member* member = roll.find(static_cast<int>(rank));
  return !elastic() && expendable(rank) && member != nullptr && member->replaceable;
}

void Coordinator::Impl::do_without(int rank, const std::string& why) {
  log::warn("{}. It is evicted; the others continue without it", why);
  RankState& state = ranks[static_cast<size_t>(rank)];
  state.left = state.evicted = true;
  reads_no_more(rank);
  dismiss(rank, fmt::format("this rank was evicted from the job: {}", why));
  auto news = control::encode({{"evicted", rank}, {"why", why}});
  for (auto& [fd, client] : clients)
    if (client->entered && client->rank != rank) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::on_cut_links(Client& client, uint64_t request, const control::Note& note) {
  if (!in_epoch()) throw CommError("'cut' in a job that is not elastic");
  std::vector<CutLink> cut = control::read_links(note.head, "links", options.world_size);
  std::erase_if(cut, [&](const CutLink& link) {
    return has_ended(static_cast<size_t>(link.first)) || has_ended(static_cast<size_t>(link.second));
  });
  reply(client, request, nlohmann::json::object());
  const std::vector<int> leaving = who_leaves(roll.members(), cut);
  if (leaving.empty()) return;
  FailureReport cause;
  cause.rank = leaving.front();
  cause.kind = "unreachable";
  cause.what = fmt::format("{}: rank{} {} leave{}, the fewest without which the others are connected",
                           describe(roll.members(), cut), leaving.size() == 1 ? "" : "s",
                           control::list_ranks(leaving), leaving.size() == 1 ? "s" : "");
  cause.next = "Next: look at the link (firewall, routes, cables), then start the ranks that left again";
  for (int rank : leaving)
    if (!has_ended(static_cast<size_t>(rank))) evict(rank, cause.what + ". " + cause.next);
  end_epoch(complete(cause));
}

// The launcher of another machine asks about a rank that is stopped.
void Coordinator::Impl::on_evicted(Client& client, uint64_t request, const control::Note& note) {
  const auto rank = static_cast<size_t>(control::number(note.head, "rank", 0, INT32_MAX));
  reply(client, request, {{"evicted", rank < ranks.size() && ranks[rank].evicted}});
}

}  // namespace yoke::cluster
