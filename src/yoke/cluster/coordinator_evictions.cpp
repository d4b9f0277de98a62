// Ranks without which the job continues although they are connected.
//
// Whoever is killed closes its connections, and the others notice. A process that is stopped does not, nor
// does one on a machine that has lost its power or its network. If such a rank is expendable and others have
// what it has, it is evicted once it misses its heartbeats: the others hear of it and disconnect it, its
// launcher ends it, and if it wakes up before that, it hears that it was evicted.
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"

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

// The launcher of another machine asks about a rank that is stopped.
void Coordinator::Impl::on_evicted(Client& client, uint64_t request, const control::Note& note) {
  const auto rank = static_cast<size_t>(control::number(note.head, "rank", 0, INT32_MAX));
  reply(client, request, {{"evicted", rank < ranks.size() && ranks[rank].evicted}});
}

}  // namespace yoke::cluster
