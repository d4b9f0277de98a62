// What ranks may ask of the coordinator, and what it does with the answers.
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMaxKey = 1024;
constexpr size_t kMaxStored = size_t{256} << 20;  // bytes of all values
constexpr size_t kMaxWaiting = 4096;              // values that one client waits for

// `how` it was lost, as the rest of a sentence.
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
    if (client.left) return;  // it was in flight when the rank left
    if (!client.entered) throw CommError("a heartbeat before join");
    ranks[static_cast<size_t>(client.rank)].progress = control::read_progress(client.payload);
    return;
  }
  on_request(client, header.context, control::decode(client.payload));
}

void Coordinator::Impl::on_request(Client& client, uint64_t request, const control::Note& note) {
  std::string verb = control::text(note.head, "verb", 32);
  if (verb == "join") return on_join(client, request, note);
  if (verb == "ended" && client.rank < 0) return on_ended(client, request, note);
  if (verb == "cause" && client.rank < 0)
    return reply(client, request, failure ? control::to_json(*failure) : nlohmann::json::object());
  if (!client.entered) throw CommError("'{}' before join", verb);
  if (verb == "put") return on_put(client, request, note);
  if (verb == "get") return on_get(client, request, note);
  if (verb == "forget") return on_forget(client, note);
  if (verb == "fail") return on_fail(client, request, note);
  if (verb == "leave") return on_leave(client, request, note);
  if (verb == "role") return on_role(client, request, note);
  if (verb == "close") return on_close(client, request, note);
  if (verb == "waiting") return on_waiting(client, note);
  if (verb == "behind") {
    // The asker's own progress comes with the question: its next heartbeat may be a while away.
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
    throw CommError("a join as rank {}, proved to be rank {}", member.rank, client.rank);
  std::string why = refusal;
  auto world_size = static_cast<int>(control::number(note.head, "world_size", 0, INT32_MAX));
  const bool again = why.empty() && may_come_back(member, world_size);
  if (again) {
    roll.enter_again(member);
    departures.came_back(member.rank);
  } else if (why.empty() && formed && member.rank >= 0 && has_ended(static_cast<size_t>(member.rank))) {
    why = fmt::format("the job that rank {} wants to come back to has ended or is ending", member.rank);
  } else if (why.empty()) {
    why = roll.enter(member, world_size);
    // A job that runs is not disturbed by a late comer; one that forms cannot form any more.
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
  if (roll.complete()) form();
}

// One that the job can do without, has ended, and finds the others still at work.
bool Coordinator::Impl::may_come_back(const Member& member, int world_size) const {
  auto rank = static_cast<size_t>(member.rank);
  if (!formed || failure || world_size != roll.world_size() || !expendable(rank) || !has_ended(rank))
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
  for (const Member& member : roll.members()) list.push_back(control::to_json(member));
  return control::encode({{"members", std::move(list)}});
}

void Coordinator::Impl::form() {
  formed = true;
  auto news = list_of_members();
  double now = now_seconds();
  for (RankState& rank : ranks) rank.last_seen = now;
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::fail_forming(const std::string& why) {
  refusal = why;
  auto news = control::encode({{"error", why}});
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::on_put(Client& client, uint64_t request, const control::Note& note) {
  std::string key = control::text(note.head, "key", kMaxKey);
  const bool once = note.head.contains("once") && control::flag(note.head, "once");
  if (stored + key.size() + note.value.size() > kMaxStored)
    return reply(client, request,
                 {{"error", fmt::format("the coordinator holds {} MB of values already", stored >> 20)}});
  Value value{note.value, {}};
  for (size_t rank = 0; once && rank < ranks.size(); ++rank)
    if (static_cast<int>(rank) != client.rank && !has_ended(rank))
      value.readers.insert(static_cast<int>(rank));
  // A value for readers of whom none is left is kept for nobody.
  if (!once || !value.readers.empty()) store(key, std::move(value));
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
  waiters[key].push_back({client.connection->fd(), request});
}

// The client does not wait for that value any more.
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
  std::optional<FailureReport> early;
  if (note.head.contains("wait"))
    early = early_end_of(read_wait(note.head["wait"], options.world_size), client.rank);
  if (early && report.kind != "mismatch") {
    report = *early;
  } else if (report.rank >= 0 && ranks[static_cast<size_t>(report.rank)].left) {
    report.kind = "left";
    report.what = fmt::format("{} ended (exit in good order) while {} waited for it: {}",
                              name_of(report.rank), name_of(client.rank), report.what);
    report.next =
        "Next: every rank must take part in every operation; look for a rank with fewer steps or batches";
  } else if (report.rank < 0 && !left_ranks().empty()) {
    report.what +=
        fmt::format("; rank {} had ended before (exit in good order)", control::list_ranks(left_ranks()));
  }
  blame.add_report_of_rank(report, client.rank, now_seconds());
  reply(client, request, nlohmann::json::object());
}

// The launcher of another machine knows how its ranks ended.
void Coordinator::Impl::on_ended(Client& client, uint64_t request, const control::Note& note) {
  add_report_of_launcher(control::read_report(note.head, options.world_size));
  reply(client, request, nlohmann::json::object());
}

void Coordinator::Impl::add_report_of_launcher(const FailureReport& told) {
  FailureReport report = complete(told);
  // A launcher on another machine does not know the roles of its ranks.
  std::string plain = rank_name(report.rank, "");
  if (!report.role.empty() && report.what.starts_with(plain + " on "))
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
  if (!good) return rank_lost(client.rank, "it ended by an exception of its own");
  ranks[static_cast<size_t>(client.rank)].left = true;
  reads_no_more(client.rank);
  departures.left(client.rank);
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
      fail_forming(fmt::format("{} while ranks {} of {} had not come yet. {}", report.what,
                               control::list_ranks(roll.missing()), options.world_size, report.next));
    return;
  }
  if (expendable(static_cast<size_t>(rank))) {
    state.left = true;
    return;
  }
  state.lost = true;
  blame.add(Blame::Sign::kLost, report, -1, now_seconds());
}

std::vector<int> Coordinator::Impl::left_ranks() const {
  std::vector<int> list;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].left) list.push_back(static_cast<int>(i));
  return list;
}

// Host, process and step of the accused, where the one who reports does not know them.
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
  failure = std::make_shared<FailureReport>(report);
  auto news = control::encode(control::to_json(report));
  if (!formed && refusal.empty()) fail_forming(report.what + (report.next.empty() ? "" : ". " + report.next));
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kAbort, 0, news);
}

}  // namespace yoke::cluster
