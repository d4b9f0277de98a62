// Examines what ranks wait for: ranks that will never arrive, and slow ones.
#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMaxWaits = 64;
constexpr double kSlow =
    20;  // seconds until an operation is mentioned; the next line comes after twice as long

bool is_in(const std::vector<Wait>& waits, const Wait& operation) {
  return std::any_of(waits.begin(), waits.end(), [&](const Wait& one) {
    return one.group == operation.group && one.number == operation.number;
  });
}

}  // namespace

std::string Coordinator::Impl::name_of(int rank) const {
  const Member* member = roll.find(rank);
  return rank_name(rank, member == nullptr ? "" : member->role);
}

void Coordinator::Impl::on_role(Client& client, uint64_t request, const control::Note& note) {
  roll.set_role(client.rank, control::text(note.head, "role", control::kMaxRole));
  reply(client, request, nlohmann::json::object());
}

void Coordinator::Impl::on_close(Client& client, uint64_t request, const control::Note& note) {
  auto group = static_cast<uint64_t>(control::number(note.head, "group", INT64_MIN, INT64_MAX));
  auto size = static_cast<int>(control::number(note.head, "size", 1, options.world_size));
  departures.closed(client.rank, group, size, control::number(note.head, "operations", 0, INT64_MAX));
  reply(client, request, nlohmann::json::object());
}

void Coordinator::Impl::on_waiting(Client& client, const control::Note& note) {
  auto list = note.head.find("waits");
  if (list == note.head.end() || !list->is_array() || list->size() > kMaxWaits)
    throw CommError("a control message without a list of waits");
  std::vector<Wait> waits;
  for (const auto& one : *list) waits.push_back(read_wait(one, options.world_size));
  double now = now_seconds();
  for (const Wait& wait : waits) {
    if (std::optional<FailureReport> report = early_end_of(wait, client.rank))
      blame.add(Blame::Sign::kLeft, complete(*report), client.rank, now);
    else if (wait.seconds >= kSlow)
      mention_slow(wait, client.rank, now);
  }
  RankState& rank = ranks[static_cast<size_t>(client.rank)];
  rank.waits = std::move(waits);
  rank.waits_at = now;
}

std::optional<FailureReport> Coordinator::Impl::early_end_of(const Wait& wait, int waiting) const {
  std::optional<Departures::Absent> absent = departures.absent(wait);
  if (!absent || absent->rank == waiting) return std::nullopt;
  const Member* member = roll.find(absent->rank);
  return early_end(*absent, member == nullptr ? name_of(absent->rank) : control::name_of(*member), wait,
                   name_of(waiting));
}

// Logged for one waiting rank only, the lowest. Ranks that are in the operation too, or past it, are not
// waited for.
void Coordinator::Impl::mention_slow(const Wait& wait, int waiting, double now) {
  std::vector<std::string> behind;
  for (int rank : wait.ranks) {
    const RankState& state = ranks[static_cast<size_t>(rank)];
    if (rank == waiting || state.left) continue;  // it has done its part, or the wait would have failed
    bool said = now - state.waits_at < 3 * options.heartbeat && is_in(state.waits, wait);
    if (said && rank < waiting) return;
    bool through = wait.group == kWorldGroup && state.progress.operation >= wait.number;
    if (!said && (wait.number == 0 || !through)) behind.push_back(name_of(rank));
  }
  if (behind.empty() || now < next_mention) return;
  next_mention = now + wait.seconds;
  log::info("{} is still waiting for {} in {} ({:.0f} s)", name_of(waiting), join(behind, ", "), wait.name,
            wait.seconds);
}

}  // namespace yoke::cluster
