#include "yoke/collab/meeting_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/net/gate.h"

namespace yoke::collab {
struct MeetingServer::Impl {
  struct Link {
    std::unique_ptr<net::Connection> connection;
    std::vector<std::byte> payload;
    double budget = kMaxRequestsPerSecond;
    double counted = 0;
    bool closing = false;
  };

  Impl(const Ticket& ticket, MeetingOptions options, Save saving)
      : job(job_ticket(ticket)),
        run_id(ticket.run_id),
        save(std::move(saving)),
        gate(ticket.meeting, job),
        address(gate.address()),
        meeting(std::move(options), now_seconds()),
        stop(::eventfd(0, EFD_CLOEXEC)) {
    YOKE_CHECK(static_cast<bool>(stop), "eventfd: {}", describe_errno(errno));
    thread = std::thread([this] { serve(); });
  }

  ~Impl() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(stop.get(), &one, sizeof one);
    thread.join();
  }

  void serve() try {
    for (;;) {
      if (wait()) return;
      for (auto& connection : gate.pump()) links[next_link++].connection = std::move(connection);
      refused = gate.refused();
      std::vector<int> broken;
      for (auto& [number, link] : links)
        if (!read(number, link)) broken.push_back(number);
      for (int number : broken) close(number);
      meeting.tick(now_seconds());
      save_record();
      send_replies();
      std::lock_guard lock(mutex);
      empty = meeting.ended() && meeting.present() == 0;
      if (empty) changed.notify_all();
    }
  } catch (const std::exception& error) {
    log::error("collab: the meeting point failed: {}", error.what());
  }

  // True: told to stop.
  bool wait() {
    std::vector<pollfd> waits = {{stop.get(), POLLIN, 0}, {gate.fd(), POLLIN, 0}};
    for (auto& [number, link] : links)
      waits.push_back({link.connection->fd(), link.connection->poll_events(within_rate(link)), 0});
    ::poll(waits.data(), waits.size(), static_cast<int>(Meeting::kTick * 1000));
    return (waits[0].revents & POLLIN) != 0;
  }

  // False: the link is broken, or must be closed.
  bool read(int number, Link& link) try {
    link.connection->flush();
    if (link.closing) return link.connection->has_unsent();
    while (within_rate(link)) {
      const net::FrameHeader* header = link.connection->next_header();
      if (header == nullptr) break;
      if (header->type != net::FrameType::kRequest || header->length > kMaxRequestBytes)
        return tell(link, "a frame of another type or size than a request");
      link.payload.resize(header->length);
      if (!link.connection->receive(link.payload)) break;
      --link.budget;
      meeting.request(number, nlohmann::json::parse(text_of(link), nullptr, /*allow_exceptions=*/false),
                      now_seconds());
    }
    return true;
  } catch (const Error&) {
    return false;
  }

  static bool tell(const Link& link, const char* why) {
    log::warn("collab: {} is disconnected: {}", link.connection->peer_text(), why);
    return false;
  }

  static std::string_view text_of(const Link& link) {
    return {reinterpret_cast<const char*>(link.payload.data()), link.payload.size()};
  }

  // What comes faster waits in the socket.
  static bool within_rate(Link& link) {
    const double now = now_seconds();
    link.budget = std::min(kMaxRequestsPerSecond, link.budget + (now - link.counted) * kMaxRequestsPerSecond);
    link.counted = now;
    return link.budget >= 1;
  }

  void save_record() {
    MeetingRecord record = meeting.record();
    if (!save || record.newest == saved) return;
    record.run_id = run_id;
    save(record);
    saved = record.newest;
  }

  void send_replies() {
    for (Meeting::Reply& reply : meeting.take_replies()) {
      auto at = links.find(reply.link);
      if (at == links.end()) continue;
      Link& link = at->second;
      const std::string text = reply.message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      link.connection->post_copy({.type = net::FrameType::kReply}, net::as_bytes(text));
      link.closing = link.closing || reply.close;
      try {
        link.connection->flush();
      } catch (const Error&) {
        link.closing = true;  // the next read closes it
      }
    }
  }

  void close(int number) {
    links.erase(number);
    meeting.closed(number, now_seconds());
  }

  net::JobTicket job;
  std::string run_id;
  Save save;
  Position saved;
  net::Gate gate;
  net::Address address;
  Meeting meeting;
  std::map<int, Link> links;
  int next_link = 0;
  net::Descriptor stop;
  std::atomic<int64_t> refused{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool empty = false;
  std::thread thread;
};

namespace {

MeetingServer::Save into(const std::filesystem::path& file) {
  if (file.empty()) return {};
  return [file](const MeetingRecord& record) { write_record(file, record); };
}

}  // namespace

MeetingServer::MeetingServer(const Ticket& ticket, MeetingOptions options,
                             const std::filesystem::path& record)
    : MeetingServer(ticket, std::move(options), into(record)) {}
MeetingServer::MeetingServer(const Ticket& ticket, MeetingOptions options, Save save)
    : impl_(std::make_unique<Impl>(ticket, std::move(options), std::move(save))) {}
MeetingServer::~MeetingServer() = default;

net::Address MeetingServer::address() const {
  return impl_->address;
}

int64_t MeetingServer::refused() const {
  return impl_->refused;
}

bool MeetingServer::wait_until_empty(Deadline deadline) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, std::chrono::duration<double>(deadline.left()),
                                 [&] { return impl_->empty; });
}

}  // namespace yoke::collab
