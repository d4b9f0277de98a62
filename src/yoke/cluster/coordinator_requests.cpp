// Handles the requests of ranks.
#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/coordinator_impl.h"
#include "yoke/cluster/identity.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMaxKey = 1024;
constexpr size_t kMaxStored = size_t{256} << 20;  // total bytes of values
constexpr size_t kMaxWaiting = 4096;              // pending gets per client

// `how` it was lost, as the end of a sentence.
FailureReport lost_report(const Member& member, const std::string& how, int64_t step) {
  FailureReport report;
  report.rank = member.rank;
  report.host = member.host;
  report.pid = member.pid;
  report.step = step;
  report.kind = "lost";
  report.what = fmt::format("{} {}", control::name_of(member), how);
  report.next = "Next: look at that rank's own output, and at the machine's log for the out-of-memory killer";
  return report;
}

}  // namespace

void Coordinator::Impl::on_frame(Client& client, const net::FrameHeader& header) {
  if (client.entered && client.rank >= 0) ranks[static_cast<size_t>(client.rank)].last_seen = now_seconds();
  if (header.type == net::FrameType::kHeartbeat) {
    if (client.left) return;                        // was in flight when the rank left
    if (!client.entered && client.regroup) return;  // it has returned and waits for the next epoch
    if (!client.entered) throw CommError("a heartbeat before join");
    ranks[static_cast<size_t>(client.rank)].progress = control::read_progress(client.payload);
    return;
  }
  on_request(client, header.context, control::decode(client.payload));
}

void Coordinator::Impl::on_request(Client& client, uint64_t request, const control::Note& note) {
  std::string verb = control::text(note.head, "verb", 32);
  if (verb == "join") return on_join(client, request, note);
  if (verb == "return") return on_return(client, request, note);
  if (client.rank < 0) return on_outsider(client, request, verb, note);
  if (!client.entered) throw CommError("'{}' before join", verb);
  if (verb == "put") return on_put(client, request, note);
  if (verb == "get") return on_get(client, request, note);
  if (verb == "forget") return on_forget(client, note);
  if (verb == "fail") return on_fail(client, request, note);
  if (verb == "leave") return on_leave(client, request, note);
  if (verb == "regroup") return on_regroup(client, request, note);
  if (verb == "cut") return on_cut_links(client, request, note);
  if (verb == "role") return on_role(client, request, note);
  if (verb == "close") return on_close(client, request, note);
  if (verb == "waiting") return on_waiting(client, note);
  if (verb == "answer") return on_answer(client, note);
  if (verb == "behind") {
    // The asker sends its own progress along: its next heartbeat may be some time away.
    ranks[static_cast<size_t>(client.rank)].progress.operation =
        control::number(note.head, "own", -1, INT64_MAX);
    return reply(client, request, {{"text", behind(control::number(note.head, "operation", 0, INT64_MAX))}});
  }
  throw CommError("the unknown request '{}'", verb);
}

void Coordinator::Impl::reply(Client& client, uint64_t request, const nlohmann::json& head,
                              std::string_view value) {
  if (fault::at(fault::Point::kCoordinatorReply, client.rank) == fault::Effect::kDrop) return;
  send(client, net::FrameType::kReply, request, control::encode(head, value));
}

void Coordinator::Impl::on_join(Client& client, uint64_t request, const control::Note& note) {
  if (client.entered) throw CommError("a second join on one connection");
  Member member = control::read_member(note.head);
  if (member.rank != client.rank || member.rank < 0)
    throw CommError("a join as rank {} on a connection of rank {}", member.rank, client.rank);
  const bool ready = !note.head.contains("ready") || control::flag(note.head, "ready");
  if (elastic() && formed) return on_late_join(client, request, std::move(member), ready);
  member.seat = member.rank;
  std::string why = refusal;
  auto world_size = static_cast<int>(control::number(note.head, "world_size", 0, INT32_MAX));
  const bool late = why.empty() && takes_seat(member, world_size);
  const bool again = late || (why.empty() && may_come_back(member, world_size));
  if (late) {
    add_late(member);
  } else if (again) {
    roll.enter_again(member);
    departures.came_back(member.rank);
  } else if (why.empty() && formed && member.rank >= 0 && has_ended(static_cast<size_t>(member.rank))) {
    why = fmt::format("rank {} cannot rejoin: the job has ended or is ending", member.rank);
  } else if (why.empty()) {
    why = roll.enter(member, world_size);
    if (why.empty()) learn_traits(control::read_traits(note.head, world_size));
    // A running job ignores a late joiner; a forming one cannot form any more.
    if (!why.empty() && !formed) fail_forming(why);
  }
  if (!why.empty()) return reply(client, request, {{"error", why}});
  client.entered = true;
  ranks[static_cast<size_t>(client.rank)] = {};
  reply(client, request, {{"heartbeat", options.heartbeat}, {"suspicion", options.suspicion}});
  if (again) {
    ranks[static_cast<size_t>(client.rank)].last_seen = now_seconds();
    return send(client, net::FrameType::kReply, 0, list_of_members());
  }
  if (elastic()) client.joining = member;
  if (roll.complete()) form();
}

void Coordinator::Impl::learn_traits(const JobTraits& traits) {
  if (formed || elastic()) return;
  if (options.expendable.empty()) options.expendable = traits.expendable;
  if (options.late_ranks == 0) options.late_ranks = traits.late_ranks;
}

// An expendable rank that has ended and rejoins while the others still work.
bool Coordinator::Impl::may_come_back(const Member& member, int world_size) const {
  auto rank = static_cast<size_t>(member.rank);
  if (!formed || failure || world_size != roll.world_size() - roll.late() || !expendable(rank) ||
      !has_ended(rank))
    return false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!expendable(i) && has_ended(i)) return false;
  }
  return true;
}

bool Coordinator::Impl::has_ended(size_t rank) const {
  return rank < ranks.size() && (ranks[rank].left || ranks[rank].lost);
}

std::vector<std::byte> Coordinator::Impl::list_of_members() const {
  nlohmann::json list = nlohmann::json::array();
  for (Member member : roll.members()) {
    if (ranks[static_cast<size_t>(member.rank)].evicted)
      member.address.clear();  // nobody waits for its answer
    list.push_back(control::to_json(member));
  }
  return control::encode({{"members", std::move(list)}});
}

void Coordinator::Impl::form() {
  if (elastic()) return form_first_epoch();
  formed = true;
  auto news = list_of_members();
  double now = now_seconds();
  for (RankState& rank : ranks) rank.last_seen = now;
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::form_first_epoch() {
  std::vector<Client*> members;
  for (auto& [fd, client] : clients)
    if (client->entered) members.push_back(client.get());
  std::sort(members.begin(), members.end(), [](Client* a, Client* b) { return a->rank < b->rank; });
  start_epoch(members);
}

void Coordinator::Impl::fail_forming(const std::string& why) {
  refusal = why;
  auto news = control::encode({{"error", why}});
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::on_put(Client& client, uint64_t request, const control::Note& note) {
  std::string key = control::text(note.head, "key", kMaxKey);
  const bool read_once = note.head.contains("readers");
  if (stored + key.size() + note.value.size() > kMaxStored)
    return reply(client, request,
                 {{"error", fmt::format("the coordinator already holds {} MB of values", stored >> 20)}});
  Value value{note.value, {}};
  if (read_once)
    for (int rank : control::ranks(note.head, "readers", options.world_size))
      if (rank != client.rank && !has_ended(static_cast<size_t>(rank))) value.readers.insert(rank);
  // A value whose readers have all left is dropped.
  if (!read_once || !value.readers.empty()) store(key, std::move(value));
  reply(client, request, nlohmann::json::object());
  auto found = waiters.find(key);
  if (found == waiters.end()) return;
  std::vector<Waiter> list = std::move(found->second);
  waiters.erase(found);
  for (const Waiter& one : list) {
    auto waiting = clients.find(one.fd);
    if (waiting == clients.end()) continue;
    --waiting->second->waits;
    reply(*waiting->second, one.request, nlohmann::json::object(), note.value);
    has_read(key, waiting->second->rank);
  }
}

void Coordinator::Impl::on_get(Client& client, uint64_t request, const control::Note& note) {
  std::string key = control::text(note.head, "key", kMaxKey);
  auto found = values.find(key);
  if (found != values.end()) {
    reply(client, request, nlohmann::json::object(), found->second.bytes);
    return has_read(key, client.rank);
  }
  if (client.waits >= kMaxWaiting) throw CommError("requests for more than {} values at once", kMaxWaiting);
  ++client.waits;
  auto from = note.head.contains("from")
                  ? static_cast<int>(control::number(note.head, "from", 0, options.world_size - 1))
                  : -1;
  waiters[key].push_back({client.connection->fd(), request, from});
  if (from >= 0 && ranks[static_cast<size_t>(from)].left) blame_early_end(from, key, client.rank);
}

// Blames `rank`, which has left normally, for requests that wait for a value of it.
void Coordinator::Impl::blame_waits_for(int rank) {
  for (const auto& [key, list] : waiters)
    for (const Waiter& one : list) {
      auto waiting = clients.find(one.fd);
      if (one.from == rank && waiting != clients.end()) blame_early_end(rank, key, waiting->second->rank);
    }
}

void Coordinator::Impl::blame_early_end(int absent, const std::string& key, int waiting) {
  if (absent == waiting || expendable(static_cast<size_t>(absent))) return;
  Wait wait;
  wait.what = wait.name = fmt::format("an exchange of values ('{}')", key);
  const Member* member = roll.find(absent);
  std::string name = member == nullptr ? name_of(absent) : control::name_of(*member);
  FailureReport report = early_end({absent, true, -1}, name, wait, name_of(waiting));
  blame.add(Blame::Sign::kLeft, complete(report), waiting, now_seconds());
}

// The client no longer waits for that value.
void Coordinator::Impl::on_forget(Client& client, const control::Note& note) {
  auto request = static_cast<uint64_t>(control::number(note.head, "request", 0, INT64_MAX));
  for (auto& [key, list] : waiters)
    client.waits -= std::erase_if(
        list, [&](const Waiter& one) { return one.fd == client.connection->fd() && one.request == request; });
  std::erase_if(waiters, [](const auto& one) { return one.second.empty(); });
}

void Coordinator::Impl::store(const std::string& key, Value value) {
  auto [place, is_new] = values.try_emplace(key);
  stored -= is_new ? 0 : key.size() + place->second.bytes.size();
  stored += key.size() + value.bytes.size();
  place->second = std::move(value);
}

void Coordinator::Impl::has_read(const std::string& key, int rank) {
  auto found = values.find(key);
  if (found == values.end() || found->second.readers.erase(rank) == 0) return;
  if (!found->second.readers.empty()) return;
  stored -= key.size() + found->second.bytes.size();
  values.erase(found);
}

void Coordinator::Impl::reads_no_more(int rank) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values)
    if (value.readers.contains(rank)) keys.push_back(key);
  for (const std::string& key : keys) has_read(key, rank);
}

void Coordinator::Impl::on_fail(Client& client, uint64_t request, const control::Note& note) {
  FailureReport report = complete(control::read_report(note.head, options.world_size));
  if (regrouping) return reply(client, request, nlohmann::json::object());  // a consequence
  std::optional<FailureReport> early;
  if (note.head.contains("wait"))
    early = early_end_of(read_wait(note.head["wait"], options.world_size), client.rank);
  if (early && report.kind != "mismatch") {
    report = *early;
  } else if (report.rank >= 0 && ranks[static_cast<size_t>(report.rank)].left) {
    report.kind = "left";
    report.what = fmt::format("{} exited normally while {} waited for it: {}", name_of(report.rank),
                              name_of(client.rank), report.what);
    report.next =
        "Next: every rank must take part in every operation; look for a rank with fewer steps or batches";
  } else if (report.rank < 0 && !left_ranks().empty()) {
    report.what += fmt::format("; rank {} had exited normally before", control::list_ranks(left_ranks()));
  }
  blame.add_report_of_rank(report, client.rank, now_seconds());
  reply(client, request, nlohmann::json::object());
}

// The launcher of another machine reports how its rank ended.
void Coordinator::Impl::on_ended(Client& client, uint64_t request, const control::Note& note) {
  add_report_of_launcher(control::read_report(note.head, kMaxWorldSize));
  reply(client, request, nlohmann::json::object());
}

void Coordinator::Impl::add_report_of_launcher(const FailureReport& told) {
  FailureReport seated = told;
  if (elastic() && formed) {
    seated.rank = rank_of_seat(told.rank);
    const Member* member = roll.find(seated.rank);
    // Not in this epoch, an earlier life, or already known.
    if (member == nullptr || (told.pid != 0 && member->pid != told.pid)) return;
    if (regrouping && ranks[static_cast<size_t>(seated.rank)].lost) return;
  } else if (told.rank >= options.world_size) {
    return;
  }
  FailureReport report = complete(seated);
  // A launcher on another machine does not know the roles of its ranks.
  std::string plain = rank_name(report.rank, "");
  if (!report.role.empty() && told.rank == report.rank && report.what.starts_with(plain + " on "))
    report.what.replace(0, plain.size(), rank_name(report.rank, report.role));
  blame.add_report_of_launcher(report, now_seconds());
  if (report.rank >= 0 && static_cast<size_t>(report.rank) < ranks.size())
    ranks[static_cast<size_t>(report.rank)].lost = true;
}

void Coordinator::Impl::on_leave(Client& client, uint64_t request, const control::Note& note) {
  bool good = control::flag(note.head, "good");
  client.entered = false;
  client.left = true;
  reply(client, request, nlohmann::json::object());
  if (!good) return rank_lost(client.rank, "it ended with an exception");
  ranks[static_cast<size_t>(client.rank)].left = true;
  reads_no_more(client.rank);
  departures.left(client.rank);
  blame_waits_for(client.rank);
  advance_epoch();
  turn_joiners_away();
}

std::string Coordinator::Impl::behind(int64_t operation) const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankState& rank = ranks[i];
    if (rank.left)
      parts.push_back(fmt::format("{} left the job", name_of(static_cast<int>(i))));
    else if (rank.progress.operation < operation)
      parts.push_back(
          rank.progress.operation < 0
              ? fmt::format("{} has not entered it (nor any before)", name_of(static_cast<int>(i)))
              : fmt::format("{} has not entered it (last was number {})", name_of(static_cast<int>(i)),
                            rank.progress.operation));
  }
  constexpr size_t kShown = 8;
  if (size_t more = parts.size(); more > kShown) {
    parts.resize(kShown);
    parts.push_back(fmt::format("and {} more", more - kShown));
  }
  return parts.empty() ? "all ranks have entered it" : join(parts, "; ");
}

void Coordinator::Impl::rank_lost(int rank, const std::string& how) {
  reads_no_more(rank);
  RankState& state = ranks[static_cast<size_t>(rank)];
  const Member* member = roll.find(rank);
  if (state.left || state.lost || member == nullptr) return;
  FailureReport report = lost_report(*member, how, state.progress.step);
  if (!formed) {
    if (refusal.empty())
      fail_forming(fmt::format("{} before ranks {} of {} had joined. {}", report.what,
                               control::list_ranks(roll.missing()), options.world_size, report.next));
    return;
  }
  if (expendable(static_cast<size_t>(rank))) {
    state.left = true;
    return;
  }
  state.lost = true;
  if (!regrouping) return blame.add(Blame::Sign::kLost, report, -1, now_seconds());
  if (epoch_cause.kind.empty()) epoch_cause = report;
  count_losses();
  advance_epoch();
}

std::vector<int> Coordinator::Impl::left_ranks() const {
  std::vector<int> list;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].left) list.push_back(static_cast<int>(i));
  return list;
}

// Adds host, process and step of the culprit, which the reporter may not know.
FailureReport Coordinator::Impl::complete(FailureReport report) const {
  const Member* member = roll.find(report.rank);
  if (member == nullptr) return report;
  if (report.host.empty()) report.host = member->host;
  if (report.pid == 0) report.pid = member->pid;
  if (report.role.empty()) report.role = member->role;
  if (report.step < 0) report.step = ranks[static_cast<size_t>(report.rank)].progress.step;
  return report;
}

void Coordinator::Impl::broadcast_failure(const FailureReport& decided) {
  FailureReport report = complete(decided);
  // Ranks that disagree about what to compute will do so again.
  if (elastic() && formed && report.kind != "mismatch" && report.kind != "stopped") return end_epoch(report);
  failure = std::make_shared<FailureReport>(report);
  auto news = control::encode(control::to_json(report));
  if (!formed && refusal.empty()) fail_forming(report.what + (report.next.empty() ? "" : ". " + report.next));
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kAbort, 0, news);
}

}  // namespace yoke::cluster
