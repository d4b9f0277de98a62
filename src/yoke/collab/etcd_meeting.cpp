#include "yoke/collab/etcd_meeting.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/etcd.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/collab/meeting_server.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr const char* kStarting = "starting";
constexpr double kAskEvery = 0.2;                           // seconds
constexpr double kOneHost = 1;                              // seconds
constexpr double kKeepEvery = EtcdMeeting::kSeconds / 4.0;  // seconds
constexpr double kPatience = 0.8 * EtcdMeeting::kSeconds;   // of the host with an etcd that does not answer

Json settings_of(const MeetingOptions& options) {
  return {{"min_peers", options.min_peers},
          {"timeout", options.timeout},
          {"quorum_timeout", options.quorum_timeout},
          {"group_size", options.group_size},
          {"roles", static_cast<int>(options.roles)}};
}

void apply_settings(const std::string& text, MeetingOptions& options) try {
  const Json settings = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  options.min_peers = integer_field(settings, "min_peers", 1, 1024);
  options.timeout = number_field(settings, "timeout");
  options.quorum_timeout = number_field(settings, "quorum_timeout");
  options.group_size = integer_field(settings, "group_size", 0, 1024);
  options.roles = static_cast<RolePolicy>(integer_field(settings, "roles", 0, 2));
} catch (const BadMessage& error) {
  throw CommError("collab: the settings of the run in etcd are damaged: {}", error.what());
}

net::Address reachable(net::Address address, const net::Address& towards) {
  if (address.host == "0.0.0.0" || address.host == "::") address.host = net::local_address_towards(towards);
  return address;
}

}  // namespace

struct EtcdMeeting::Impl {
  Impl(const Ticket& of, std::optional<EtcdHost> by)
      : ticket(of), host(std::move(by)), asking(of.etcd), keeping(of.etcd), saving(of.etcd) {
    if (!host || !host->starts_run) return;
    const Deadline deadline = Deadline::after(kPatience);
    if (asking.get(key("record"), deadline) || asking.get(key("settings"), deadline))
      throw ConfigError("--run-id {}: etcd has a run of that name. Next: take another name.", ticket.run_id);
    asking.put(key("settings"), settings_of(host->options).dump(), 0, deadline);
  }

  ~Impl() { resign(); }

  std::string key(const char* name) const { return fmt::format("/yoke/collab/{}/{}", ticket.run_id, name); }

  net::Address find(Deadline deadline) {
    for (;;) {
      const Deadline one = Deadline::after(std::max(kAskEvery, std::min(kPatience, deadline.left())));
      std::optional<cluster::Etcd::Value> value = asking.get(key("meeting"), one);
      if (!value && host) value = take_over(one);
      if (value && value->text != kStarting) return net::parse_address(value->text);
      if (deadline.passed())
        throw Error(
            ExitCode::kRendezvous,
            fmt::format("collab: nobody hosts the meeting point of run '{}' (etcd at {}). Next: is a peer "
                        "running that accepts connections?",
                        ticket.run_id, asking.member().text()));
      std::this_thread::sleep_for(std::chrono::duration<double>(kAskEvery));
    }
  }

  // Of several peers that try, the one whose key is there first.
  std::optional<cluster::Etcd::Value> take_over(Deadline deadline) {
    resign();
    const int64_t granted = asking.grant(kSeconds, deadline);
    cluster::Etcd::Value now = asking.create(key("meeting"), kStarting, granted, deadline);
    if (now.lease != granted) {
      asking.revoke(granted, deadline);
      return now;
    }
    lease = granted;
    resigned = false;
    keeper = std::thread([this] { keep(); });
    try {
      start(deadline);
    } catch (...) {
      resign();
      throw;
    }
    return cluster::Etcd::Value{address.text(), granted};
  }

  void start(Deadline deadline) {
    MeetingOptions options = host->options;
    if (auto settings = asking.get(key("settings"), deadline)) apply_settings(settings->text, options);
    if (auto text = asking.get(key("record"), deadline)) {
      const MeetingRecord record = parse_record(text->text, "the record of the run in etcd");
      options.returns = true;
      options.known = {record.previous, record.newest};
    }
    Ticket bound = ticket;
    bound.meeting = host->listen;
    auto save = [this](const MeetingRecord& record) { this->save(record); };
    auto made = std::make_unique<MeetingServer>(bound, options, save);
    address = reachable(made->address(), ticket.etcd.front());
    asking.put(key("meeting"), address.text(), lease, deadline);
    log::info("collab: run '{}' meets at {}, in this process", ticket.run_id, address.text());
    std::lock_guard lock(mutex);
    server = std::move(made);
  }

  // In the thread of the meeting point: no step is told before it is recorded, and by the host only.
  void save(const MeetingRecord& record) try {
    const Deadline deadline = Deadline::after(kPatience);
    if (resigned || !saving.keep(lease, deadline)) throw CommError("another process is the host");
    int64_t expires = 0;
    if (record.newest.epoch >= host->options.steps) {
      expires = saving.grant(EtcdMeeting::kKeptSeconds, deadline);
      if (auto settings = saving.get(key("settings"), deadline))
        saving.put(key("settings"), settings->text, expires, deadline);
    }
    saving.put(key("record"), to_text(record), expires, deadline);
  } catch (const Error& error) {
    {
      std::lock_guard lock(mutex);
      resigned = true;
      changed.notify_all();
    }
    throw CommError("collab: the record of the run could not be written to etcd: {}", error.what());
  }

  void keep() {
    double kept = now_seconds();
    for (std::unique_lock lock(mutex);;) {
      changed.wait_for(lock, std::chrono::duration<double>(kKeepEvery), [&] { return resigned.load(); });
      if (resigned) break;
      lock.unlock();
      bool ours = true;
      try {
        ours = keeping.keep(lease, Deadline::after(kKeepEvery));
        if (ours) kept = now_seconds();
      } catch (const Error& error) {
        log::info("{}", error.what());
      }
      lock.lock();
      if (!ours || now_seconds() > kept + kPatience) resigned = true;
    }
    std::unique_ptr<MeetingServer> mine;
    {
      std::lock_guard lock(mutex);
      mine = std::move(server);
    }
    mine.reset();  // peers look for another host
    try {
      keeping.revoke(lease, Deadline::after(kKeepEvery));
    } catch (const Error& error) {
      log::info("{}", error.what());  // it expires
    }
  }

  void resign() {
    {
      std::lock_guard lock(mutex);
      resigned = true;
      changed.notify_all();
    }
    if (keeper.joinable()) keeper.join();
  }

  void wait_until_empty(Deadline deadline) {
    while (!deadline.passed()) {
      std::unique_lock lock(mutex);
      if (server == nullptr) return;
      if (server->wait_until_empty(Deadline::after(kAskEvery))) return;
    }
  }

  const Ticket ticket;
  const std::optional<EtcdHost> host;
  cluster::Etcd asking, keeping, saving;  // each for one thread
  int64_t lease = 0;
  net::Address address;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> resigned{true};
  std::unique_ptr<MeetingServer> server;
  std::thread keeper;
};

EtcdMeeting::EtcdMeeting(const Ticket& ticket, std::optional<EtcdHost> host)
    : impl_(std::make_unique<Impl>(ticket, std::move(host))) {}
EtcdMeeting::~EtcdMeeting() = default;

net::Address EtcdMeeting::find(Deadline deadline) {
  return impl_->find(deadline);
}

void EtcdMeeting::wait_until_empty(Deadline deadline) {
  impl_->wait_until_empty(deadline);
}

std::unique_ptr<MeetingClient> reach_meeting(Ticket ticket, Deadline deadline) {
  if (ticket.etcd.empty()) return std::make_unique<MeetingClient>(ticket, deadline);
  EtcdMeeting meeting(ticket, std::nullopt);
  for (;;) {
    ticket.meeting = meeting.find(deadline);
    try {
      return std::make_unique<MeetingClient>(ticket, Deadline::after(std::min(kOneHost, deadline.left())));
    } catch (const Error&) {  // it may be gone, and etcd does not know yet
      if (deadline.passed()) throw;
    }
  }
}

}  // namespace yoke::collab
