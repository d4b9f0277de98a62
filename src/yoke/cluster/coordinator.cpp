#include "yoke/cluster/coordinator.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"

namespace yoke::cluster {
namespace {

constexpr double kNewsEvery = 5;  // seconds between lines about missing ranks
constexpr double kNewsAtMostEvery = 0.5;
constexpr size_t kMaxUnsent = 4096;  // frames queued for a rank that does not read
constexpr size_t kMaxUnsentBytes = size_t{64} << 20;
constexpr double kGoodbye = 0.5;  // seconds for the final messages

void watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  YOKE_CHECK(::epoll_ctl(epoll, operation, fd, &event) == 0, "epoll_ctl: {}", describe_errno(errno));
}

}  // namespace

Coordinator::Impl::Impl(const CoordinatorOptions& given, const net::JobTicket& ticket)
    : options(given),
      gate(given.address, ticket),
      address(gate.address()),
      epoll(::epoll_create1(EPOLL_CLOEXEC)),
      wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      roll(given.world_size),
      ranks(static_cast<size_t>(given.world_size)),
      next_seat(given.world_size),
      started(now_seconds()) {
  YOKE_CHECK(epoll && wake, "epoll_create, eventfd: {}", describe_errno(errno));
  watch(epoll.get(), EPOLL_CTL_ADD, gate.fd(), EPOLLIN);
  watch(epoll.get(), EPOLL_CTL_ADD, wake.get(), EPOLLIN);
  thread = std::thread([this] { serve(); });
}

Coordinator::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(wake.get(), &one, sizeof one);
  thread.join();
}

void Coordinator::Impl::serve() try {
  for (;;) {
    int timeout;
    {
      std::lock_guard lock(mutex);
      if (stopping) break;
      timeout = timeout_ms(now_seconds());
    }
    step(timeout);
  }
  std::lock_guard lock(mutex);
  settle(now_seconds(), /*at_once=*/true);
  say_goodbye();
} catch (const std::exception& error) {
  // The ranks only see their connections close; this logs why.
  log::error("the coordinator at {} failed: {}", address.text(), error.what());
  std::lock_guard lock(mutex);
  clients.clear();
}

int Coordinator::Impl::timeout_ms(double now) const {
  double until = now + kLookEvery;
  if (blame.pending()) until = std::min(until, blame.due());
  return std::max(0, static_cast<int>((until - now) * 1e3) + 1);
}

// Clients that fail are only marked in `lost` and dropped at the end of the step: callers up the stack may
// hold references to them.
void Coordinator::Impl::step(int timeout) {
  std::array<epoll_event, 128> events;
  int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), timeout);
  std::lock_guard lock(mutex);
  for (int i = 0; i < count; ++i) {
    int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == wake.get()) {
      uint64_t ignored;
      [[maybe_unused]] ssize_t got = ::read(fd, &ignored, sizeof ignored);
    }
    auto found = clients.find(fd);
    if (found == clients.end()) continue;
    if ((events[static_cast<size_t>(i)].events & EPOLLOUT) != 0) flush(*found->second);
    read_from(*found->second);
  }
  for (auto& connection : gate.pump()) admit(std::move(connection));
  on_time(now_seconds());
  drop_lost();
}

void Coordinator::Impl::admit(std::unique_ptr<net::Connection> connection) try {
  if (connection->peer().purpose != "control") {
    log::warn("{} connected to the coordinator for '{}' instead of 'control'", connection->peer_text(),
              connection->peer().purpose);
    return;
  }
  int fd = connection->fd();
  auto client = std::make_unique<Client>();
  client->rank = client->seat = connection->peer().rank;
  client->connection = std::move(connection);
  watch(epoll.get(), EPOLL_CTL_ADD, fd, EPOLLIN);
  clients[fd] = std::move(client);
} catch (const std::exception& error) {
  log::warn("the coordinator cannot accept another connection: {}", error.what());
}

// Reads everything that has arrived before a closed connection is noticed: the last message of a dying rank
// is often the cause of its failure.
void Coordinator::Impl::read_from(Client& client) try {
  while (const net::FrameHeader* next = client.connection->next_header()) {
    net::FrameHeader header = *next;
    if (!control::from_rank(header.type))
      return turn_away(
          client, fmt::format("a frame of type {} on a control connection", static_cast<int>(header.type)));
    client.payload.resize(header.length);
    if (!client.connection->receive(client.payload)) return;
    if (!handle(client, header)) return;
  }
} catch (const std::exception& error) {
  lose(client,
       fmt::format("disconnected without leaving the job: it crashed or was killed ({})", error.what()));
}

bool Coordinator::Impl::handle(Client& client, const net::FrameHeader& header) {
  try {
    on_frame(client, header);
    return true;
  } catch (const std::exception& error) {
    turn_away(client, error.what());
    return false;
  }
}

void Coordinator::Impl::turn_away(Client& client, const std::string& sent) {
  log::warn("the coordinator rejected {}, which sent {}", client.connection->peer_text(), sent);
  lose(client, fmt::format("violated the coordinator's protocol and was disconnected: it sent {}", sent));
}

void Coordinator::Impl::lose(Client& client, const std::string& how) {
  lost.emplace(client.connection->fd(), how);
}

void Coordinator::Impl::drop_lost() {
  while (!lost.empty()) {
    auto [fd, how] = *lost.begin();
    auto found = clients.find(fd);
    if (found != clients.end() && std::exchange(found->second->entered, false))
      rank_lost(found->second->rank, how);
    drop(fd);
    lost.erase(fd);
  }
}

void Coordinator::Impl::send(Client& client, net::FrameType type, uint64_t request, net::Bytes bytes) {
  net::FrameHeader header;
  header.type = type;
  header.context = request;
  client.connection->post_copy(header, bytes);
  client.unsent += bytes.size();
  flush(client);
}

void Coordinator::Impl::flush(Client& client) try {
  bool writing = !client.connection->flush();
  if (writing != client.writing)
    watch(epoll.get(), EPOLL_CTL_MOD, client.connection->fd(), EPOLLIN | (writing ? EPOLLOUT : 0u));
  client.writing = writing;
  if (!writing) client.unsent = 0;
  if (client.connection->unsent_frames() > kMaxUnsent || client.unsent > kMaxUnsentBytes)
    lose(client, "does not read messages from the coordinator: it is stopped, or its machine hangs");
} catch (const Error&) {
  // The loss is noticed on reading, after everything it sent before has been handled.
}

void Coordinator::Impl::drop(int fd) {
  for (auto& [key, list] : waiters) std::erase_if(list, [&](const Waiter& one) { return one.fd == fd; });
  std::erase_if(waiters, [](const auto& one) { return one.second.empty(); });
  forget_questions(fd);
  clients.erase(fd);
}

void Coordinator::Impl::on_time(double now) {
  if (double late = own_lateness.look(now); late > 0)
    for (RankState& rank : ranks) rank.last_seen = std::min(now, rank.last_seen + late);
  const bool late = !formed && refusal.empty() && now - started > options.join_timeout;
  if (late && elastic() && roll.members().size() >= static_cast<size_t>(options.elastic_min)) {
    log::warn("ranks {} of {} did not join within {:.0f} s; the job starts without them (elastic.min = {})",
              control::list_ranks(roll.missing()), options.world_size, options.join_timeout,
              options.elastic_min);
    form_first_epoch();
  } else if (late)
    fail_forming(fmt::format("{} of {} ranks did not join within {:.0f} s: {}. {}", roll.missing().size(),
                             options.world_size, options.join_timeout, control::list_ranks(roll.missing()),
                             what_keeps_them_away()));
  if (!formed && refusal.empty()) tell_who_is_missing(now);
  if (now >= next_beat) beat(now);
  if (formed) look_for_stalled(now);
  look_at_regrouping(now);
  if (regrouping) advance_epoch();
  settle(now);
}

std::string Coordinator::Impl::what_keeps_them_away() const {
  if (!gate.last_refusal().empty())
    return fmt::format(
        "Turned away meanwhile: {}. Next: the same key, job id and protection on all machines "
        "(--secret-file, "
        "--rdzv-id)",
        gate.last_refusal());
  return fmt::format(
      "Next: check that they were started with the same endpoint and job id, and that they can reach {}",
      address.text());
}

void Coordinator::Impl::tell_who_is_missing(double now) {
  std::vector<int> missing = roll.missing();
  bool changed = missing != told_missing && now >= next_news - kNewsEvery + kNewsAtMostEvery;
  if (!changed && now < next_news) return;
  next_news = now + kNewsEvery;
  told_missing = missing;
  auto news = control::encode({{"missing", missing}, {"left", options.join_timeout - (now - started)}});
  for (auto& [fd, client] : clients)
    if (client->entered) send(*client, net::FrameType::kReply, 0, news);
}

void Coordinator::Impl::beat(double now) {
  next_beat = now + options.heartbeat;
  for (auto& [fd, client] : clients)
    if (client->entered || client->regroup) send(*client, net::FrameType::kHeartbeat, 0, {});
}

void Coordinator::Impl::look_for_stalled(double now) {
  const double limit = options.suspicion + own_lateness.allowance();
  for (size_t i = 0; i < ranks.size(); ++i) {
    RankState& rank = ranks[i];
    if (rank.left || rank.lost || rank.awaited || now - rank.last_seen <= limit) continue;
    if (expendable(i) && !replaceable(i)) continue;
    FailureReport report;
    report.rank = static_cast<int>(i);
    report.kind = "stalled";
    const Member* member = roll.find(report.rank);
    report.what = fmt::format(
        "{} sent no heartbeat for {:.1f} s: it is stopped, or its machine hangs or is unreachable",
        member ? control::name_of(*member) : fmt::format("rank {}", i), now - rank.last_seen);
    if (replaceable(i)) {
      do_without(report.rank, report.what);
      continue;
    }
    rank.lost = true;
    report.next = "Next: look at that process (`ps`, a debugger attached, the machine's load and memory)";
    blame.add(Blame::Sign::kStalled, report, -1, now);
  }
}

void Coordinator::Impl::settle(double now, bool at_once) {
  if (auto report = blame.decide(now, at_once)) broadcast_failure(*report);
}

// Announces a normal end to connected ranks; does not wait for replies.
void Coordinator::Impl::say_goodbye() {
  Deadline deadline = Deadline::after(kGoodbye);
  auto news = control::encode({{"closing", true}, {"departures", departures.to_json()}});
  for (auto& [fd, client] : clients) {
    send(*client, net::FrameType::kReply, 0, news);
    try {
      client->connection->flush_all(deadline);
    } catch (const Error&) {
      // It is gone or does not read: it will see the connection close.
    }
  }
}

Coordinator::Coordinator(const CoordinatorOptions& options, const net::JobTicket& ticket)
    : impl_(std::make_unique<Impl>(options, ticket)) {}
Coordinator::~Coordinator() = default;

net::Address Coordinator::address() const {
  return impl_->address;
}

void Coordinator::report(const FailureReport& report) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->add_report_of_launcher(report);
  }
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(impl_->wake.get(), &one, sizeof one);
}

void Coordinator::left(int seat) {
  std::lock_guard lock(impl_->mutex);
  const int rank = impl_->in_epoch() ? impl_->rank_of_seat(seat) : seat;
  if (rank < 0 || static_cast<size_t>(rank) >= impl_->ranks.size()) return;
  impl_->ranks[static_cast<size_t>(rank)].left = true;
  impl_->reads_no_more(rank);
  if (!impl_->expendable(static_cast<size_t>(rank))) impl_->departures.left(rank);
  impl_->blame.retract(rank);
}

std::shared_ptr<const FailureReport> Coordinator::failure() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

Coordinator::Holding Coordinator::holding() const {
  std::lock_guard lock(impl_->mutex);
  Holding now{impl_->values.size(), impl_->stored, 0};
  for (const auto& [key, list] : impl_->waiters) now.waiting += list.size();
  return now;
}

bool Coordinator::has_joined(int seat) const {
  std::lock_guard lock(impl_->mutex);
  const int rank = impl_->in_epoch() ? impl_->rank_of_seat(seat) : seat;
  return impl_->roll.find(rank) != nullptr;
}

bool Coordinator::expendable(int rank) const {
  std::lock_guard lock(impl_->mutex);
  return rank >= 0 && impl_->expendable(static_cast<size_t>(rank));
}

bool Coordinator::is_replaceable(int rank) const {
  std::lock_guard lock(impl_->mutex);
  return rank >= 0 && impl_->replaceable(static_cast<size_t>(rank));
}

bool Coordinator::is_evicted(int rank) const {
  std::lock_guard lock(impl_->mutex);
  const auto index = static_cast<size_t>(rank);
  return rank >= 0 && index < impl_->ranks.size() && impl_->ranks[index].evicted;
}

std::string Coordinator::role(int seat) const {
  std::lock_guard lock(impl_->mutex);
  const int rank = impl_->in_epoch() ? impl_->rank_of_seat(seat) : seat;
  const Member* member = impl_->roll.find(rank);
  return member == nullptr ? "" : member->role;
}

std::vector<int> Coordinator::missing() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->formed ? std::vector<int>() : impl_->roll.missing();
}

nlohmann::json Coordinator::position() const {
  std::lock_guard lock(impl_->mutex);
  nlohmann::json now = control::to_json(impl_->epoch);
  int64_t step = -1;
  for (const Impl::RankState& rank : impl_->ranks) step = std::max(step, rank.progress.step);
  now["step"] = step;
  now.erase("rank");
  return now;
}

bool Coordinator::finished() const {
  std::lock_guard lock(impl_->mutex);
  return !impl_->failure && std::any_of(impl_->ranks.begin(), impl_->ranks.end(),
                                        [](const Impl::RankState& rank) { return rank.left; });
}

bool Coordinator::wait_until_empty(Deadline deadline) const {
  for (;;) {
    {
      std::lock_guard lock(impl_->mutex);
      if (std::none_of(impl_->clients.begin(), impl_->clients.end(),
                       [](const auto& one) { return one.second->entered; }))
        return true;
    }
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace yoke::cluster
