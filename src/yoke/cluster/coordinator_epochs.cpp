// Epochs of an elastic job: who is in, and how those left after a loss, or those that join, become the next.
//
// A loss is noticed and explained like any other failure (coordinator_blame.h). Where it would end a fixed
// job it ends an epoch: every member hears why, drops its communicators and asks to regroup, over the same
// control connection. That connection is what makes a loss during regrouping visible, at any time. The next
// epoch starts once nobody who is left is missing: members in their old order, then those that wait to join,
// by seat. Values, waits, departures and evidence of the old epoch are dropped with it.
#include <algorithm>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {
namespace {

constexpr const char* kOver = "the job has ended";
// Epochs in a row that end without progress, a loss or a join, until the job fails: what ended them stays.
constexpr int kFruitless = 8;
constexpr int64_t kManyOperations = 16;  // progress of programs that do not tell their step

}  // namespace

int Coordinator::Impl::rank_of_seat(int seat) const {
  for (const Member& member : roll.members())
    if (member.seat == seat) return member.rank;
  return -1;
}

void Coordinator::Impl::on_late_join(Client& client, uint64_t request, Member member, bool ready) {
  if (failure) return reply(client, request, {{"error", "the job has failed: " + failure->what}});
  const int rank = rank_of_seat(client.seat);
  replace_awaited(rank);
  const bool present = rank >= 0 && !has_ended(static_cast<size_t>(rank));
  const bool waits = std::any_of(clients.begin(), clients.end(), [&](const auto& one) {
    return one.second->joining && one.second->seat == client.seat;
  });
  if (present || waits)
    return reply(client, request,
                 {{"error", fmt::format("rank {} joined twice: {} is in the running job. Next: give every "
                                        "process its own rank",
                                        client.seat,
                                        present ? control::name_of(*roll.find(rank)) : "another process")}});
  member.seat = client.seat;
  if (is_over()) return reply(client, request, {{"error", kOver}});
  if (!ready) return reply(client, request, {{"running", true}});
  next_seat = std::max(next_seat, client.seat + 1);
  client.joining = std::move(member);
  reply(client, request, {{"heartbeat", options.heartbeat}, {"suspicion", options.suspicion}});
  tell_of_joiner();
  advance_epoch();
}

void Coordinator::Impl::tell_of_joiner() {
  auto news = control::encode({{"joining", true}});
  for (auto& [fd, other] : clients)
    if (other->entered) send(*other, net::FrameType::kReply, 0, news);
}

// Nobody is left who has the state.
bool Coordinator::Impl::is_over() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const RankState& rank) { return rank.left || rank.lost; });
}

void Coordinator::Impl::turn_joiners_away() {
  if (!in_epoch() || !is_over()) return;
  for (auto& [fd, client] : clients)
    if (!client->entered && std::exchange(client->joining, std::nullopt))
      reply(*client, 0, {{"error", kOver}});
}

void Coordinator::Impl::on_regroup(Client& client, uint64_t request, const control::Note& note) {
  if (!elastic()) throw CommError("'regroup' in a job that is not elastic");
  std::string why = control::text(note.head, "why", 16 << 10);
  constexpr int64_t kMost = int64_t{1} << 62;
  const control::Progress reached{control::number(note.head, "operation", -1, kMost),
                                  control::number(note.head, "step", -1, kMost)};
  if (failure)
    return reply(client, request,
                 {{"error", failure->what + (failure->next.empty() ? "" : ". " + failure->next)}});
  Member self = *roll.find(client.rank);
  nlohmann::json described = control::to_json(self);
  described["address"] = control::text(note.head, "address", 512);
  client.joining = control::read_member(described);
  client.regroup = request;
  ranks[static_cast<size_t>(client.rank)].progress = reached;
  if (regroup_why.empty()) regroup_why = why;
  if (!regrouping) {
    regrouping = true;
    regroup_started = now_seconds();
    // Usually this rank is one of several that noticed a loss; its evidence decides what the others hear.
    if (!why.empty() && !blame.pending())
      abort_all(complete({client.rank, "", 0, -1, "exception",
                          fmt::format("{} left the epoch: {}", name_of(client.rank), why), "", 0, ""}));
  }
  advance_epoch();
}

void Coordinator::Impl::abort_all(const FailureReport& report) {
  auto news = control::encode(control::to_json(report));
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kAbort, 0, news);
}

void Coordinator::Impl::evict(int rank, const std::string& why) {
  ranks[static_cast<size_t>(rank)].lost = true;
  dismiss(rank, fmt::format("this rank was evicted from epoch {} of the job: {}", epoch.number, why));
}

void Coordinator::Impl::dismiss(int rank, const std::string& what) {
  for (auto& [fd, client] : clients) {
    if (!client->entered || client->rank != rank) continue;
    const FailureReport report = complete({rank, "", 0, -1, "evicted", what, "", 0, ""});
    if (client->regroup) reply(*client, *client->regroup, {{"error", report.what}});
    send(*client, net::FrameType::kAbort, 0, control::encode(control::to_json(report)));
    lose(*client, "evicted");
  }
}

void Coordinator::Impl::end_epoch(const FailureReport& cause) {
  if (!regrouping) {
    regrouping = true;
    regroup_started = now_seconds();
  }
  // A machine that is gone leaves links in doubt as well.
  if (epoch_cause.kind.empty() || epoch_cause.kind == "cut") epoch_cause = cause;
  if (cause.kind == "stalled" && cause.rank >= 0 && !ranks[static_cast<size_t>(cause.rank)].left)
    evict(cause.rank, cause.what);
  abort_all(cause);
  blame = {};
  count_losses();
  advance_epoch();
}

void Coordinator::Impl::count_losses() {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].lost || counted[i]) continue;
    counted[i] = true;
    ++epoch.losses;
    const Member* member = roll.find(static_cast<int>(i));
    const bool explained = epoch_cause.rank == static_cast<int>(i);
    log::warn("epoch {}: {}{}", epoch.number,
              explained ? epoch_cause.what
                        : fmt::format("{} is gone", member == nullptr ? name_of(static_cast<int>(i))
                                                                      : control::name_of(*member)),
              ranks[i].progress.step >= 0 ? fmt::format(" (in step {})", ranks[i].progress.step) : "");
  }
}

void Coordinator::Impl::look_at_regrouping(double now) {
  look_at_returns(now);
  if (!regrouping || now - regroup_started <= options.regroup_timeout) return;
  regroup_started = now;
  for (auto& [fd, client] : clients)
    if (client->entered && !client->regroup && !has_ended(static_cast<size_t>(client->rank)))
      evict(client->rank, fmt::format("it did not regroup within {:.0f} s", options.regroup_timeout));
  count_losses();
  advance_epoch();
}

void Coordinator::Impl::advance_epoch() {
  if (!regrouping || failure || blame.pending() || awaits_returns()) return;  // the cause is told first
  std::vector<Client*> members;
  std::vector<Client*> joiners;
  size_t left = 0;
  for (auto& [fd, client] : clients) {
    // Whoever is about to be dropped is counted first.
    if (lost.contains(fd) && client->entered && !has_ended(static_cast<size_t>(client->rank))) return;
    if (lost.contains(fd)) continue;
    if (!client->entered && client->joining) joiners.push_back(client.get());
    if (client->entered && !has_ended(static_cast<size_t>(client->rank))) {
      ++left;
      if (client->regroup) members.push_back(client.get());
    }
  }
  if (members.size() < left) return;
  // Nobody has the state any more: those that wait to join cannot continue without it.
  const bool over = members.empty() &&
                    std::all_of(ranks.begin(), ranks.end(), [](const RankState& rank) { return rank.left; });
  if (over) return;
  std::sort(members.begin(), members.end(), [](Client* a, Client* b) { return a->rank < b->rank; });
  std::sort(joiners.begin(), joiners.end(), [](Client* a, Client* b) { return a->seat < b->seat; });
  if (members.empty() || members.size() + joiners.size() < static_cast<size_t>(options.elastic_min))
    return fail_for_good(too_few(members.size()));
  const bool same = joiners.empty() && members.size() == ranks.size();
  if (!options.may_start_epoch()) return;
  fruitless = same && !has_advanced() ? fruitless + 1 : 0;
  if (fruitless >= kFruitless) return fail_for_good(no_progress());
  epoch.joins += static_cast<int>(joiners.size());
  members.insert(members.end(), joiners.begin(), joiners.end());
  start_epoch(members);
}

void Coordinator::Impl::start_epoch(const std::vector<Client*>& members) {
  const auto size = static_cast<int>(members.size());
  if (formed) ++epoch.number;
  formed = true;
  regrouping = false;
  epoch.elastic = true;
  epoch.cause = epoch_cause.what.substr(0, 4096);
  epoch.in_doubt = epoch_cause.kind == "cut";
  epoch_cause = {};
  options.world_size = size;
  const bool loss_was_told = std::find(counted.begin(), counted.end(), true) != counted.end();
  roll = Roll(size);
  ranks.assign(members.size(), {});
  counted.assign(members.size(), false);
  values.clear();
  stored = 0;
  waiters.clear();
  departures = {};
  blame = {};
  for (RankState& rank : ranks) rank.last_seen = now_seconds();
  for (auto& [fd, client] : clients) client->entered = false;
  for (int rank = 0; rank < size; ++rank) {
    Client& client = *members[static_cast<size_t>(rank)];
    Member member = *client.joining;
    member.rank = rank;
    if (member.seat != rank) member.role = fmt::format("worker {}", member.seat);
    roll.enter(member, size);
    client.joining.reset();
    client.rank = rank;
    client.entered = true;
    client.waits = 0;
  }
  epoch.members = roll.members();
  const std::string& why = epoch.cause.empty() ? regroup_why : epoch.cause;
  if (epoch.number > 0)
    log::info("epoch {}: {} rank{}{}", epoch.number, size, size == 1 ? "" : "s",
              loss_was_told ? "" : ", after " + (why.empty() ? "ranks joined or left" : why));
  for (Client* client : members) {
    epoch.rank = client->rank;
    send(*client, net::FrameType::kReply, client->regroup.value_or(0),
         control::encode(control::to_json(epoch)));
    client->regroup.reset();
  }
  regroup_why.clear();
}

// Whether a rank has told of a step that none had told of before, or of many operations.
bool Coordinator::Impl::has_advanced() {
  bool advanced = false;
  for (const RankState& rank : ranks) {
    advanced = advanced || rank.progress.step > newest_step || rank.progress.operation >= kManyOperations;
    newest_step = std::max(newest_step, rank.progress.step);
  }
  return advanced;
}

FailureReport Coordinator::Impl::too_few(size_t left) const {
  FailureReport report = epoch_cause;
  if (report.what.empty()) report.what = "ranks left the job";
  report.what += fmt::format("; {} of at least {} ranks {} left (elastic.min)", left, options.elastic_min,
                             left == 1 ? "is" : "are");
  report.next = "Next: run the same command again to resume from the last checkpoint";
  return report;
}

FailureReport Coordinator::Impl::no_progress() const {
  FailureReport report;
  report.kind = "exception";
  report.what = fmt::format("{} epochs in a row ended without a finished step, although no rank was lost: {}",
                            kFruitless, epoch_cause.what.empty() ? regroup_why : epoch_cause.what);
  report.next = "Next: remove that cause and run the same command again";
  return report;
}

void Coordinator::Impl::fail_for_good(FailureReport report) {
  auto refusal_of_request = nlohmann::json{{"error", report.what + ". " + report.next}};
  for (auto& [fd, client] : clients) {
    if (client->regroup) reply(*client, *std::exchange(client->regroup, std::nullopt), refusal_of_request);
    if (!client->entered && client->joining) reply(*client, 0, refusal_of_request);
  }
  abort_all(report);
  // The launcher knows ranks by their seats.
  const Member* member = roll.find(report.rank);
  if (member != nullptr) report.rank = member->seat;
  failure = std::make_shared<FailureReport>(report);
}

}  // namespace yoke::cluster
