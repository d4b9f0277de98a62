// Unauthenticated connections are bounded in number, bytes and time, so that a port scan or a flood costs a
// running job nothing but log lines, which are rate-limited.
#include "yoke/net/gate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/net/socket_options.h"

namespace yoke::net {
namespace {

constexpr double kTellEvery = 10;   // seconds between log lines about refused connections
constexpr int kAcceptsAtOnce = 64;  // so that a flood of connections does not starve pending handshakes
constexpr int kEventsAtOnce = 64;

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  YOKE_CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: {}", describe_errno(errno));
}

}  // namespace

Gate::Gate(const Address& address, const JobTicket& ticket, int max_waiting)
    : ticket_(ticket),
      max_waiting_(static_cast<size_t>(max_waiting)),
      listening_(listen_at(address)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  YOKE_CHECK(static_cast<bool>(epoll_), "epoll_create: {}", describe_errno(errno));
  watch(epoll_.get(), listening_.get());
}

int Gate::next_ms() const {
  if (out_of_descriptors_) return 10;
  return strangers_.empty() ? -1 : 100;
}

void Gate::tell(const std::string& why) {
  ++refused_;
  last_refusal_ = why;
  double now = now_seconds();
  if (now < next_tell_) {
    ++untold_;
    return;
  }
  next_tell_ = now + kTellEvery;
  if (untold_ > 0)
    log::warn("rejected {} ({} more in the last seconds)", why, untold_);
  else
    log::warn("rejected {}", why);
  untold_ = 0;
}

void Gate::drop(Place place, const std::string& why) {
  tell(why);
  by_fd_.erase(place->fd());
  strangers_.erase(place);
}

void Gate::accept_new() {
  out_of_descriptors_ = false;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: drop the oldest pending handshake, or, if there is none, retry later.
      if (errno != EMFILE && errno != ENFILE) return;
      if (strangers_.empty()) {
        out_of_descriptors_ = true;
        return;
      }
      drop(strangers_.begin(), "a caller with an unfinished handshake: this process has too many open files");
      continue;
    }
    set_connection_options(socket.get());
    if (strangers_.size() >= max_waiting_)
      drop(strangers_.begin(), "the oldest of too many callers with an unfinished handshake");
    int fd = socket.get();
    Place place = strangers_.emplace(strangers_.end(), std::move(socket), ticket_);
    by_fd_[fd] = place;
    watch(epoll_.get(), fd);
  }
}

std::vector<std::unique_ptr<Connection>> Gate::pump() {
  std::vector<std::unique_ptr<Connection>> arrived;
  std::array<epoll_event, kEventsAtOnce> events;
  int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
  bool callers = out_of_descriptors_;
  for (int i = 0; i < count; ++i) {
    int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == listening_.get()) {
      callers = true;
      continue;
    }
    auto found = by_fd_.find(fd);
    if (found == by_fd_.end()) continue;
    Place place = found->second;
    PendingHandshake::State state = place->advance();
    if (state == PendingHandshake::State::kRefused) drop(place, place->refusal());
    if (state != PendingHandshake::State::kDone) continue;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    arrived.push_back(place->take());
    by_fd_.erase(found);
    strangers_.erase(place);
  }
  // After the handshakes above: a new connection never displaces one that was just answering.
  if (callers) accept_new();
  while (!strangers_.empty() && strangers_.front().expired())
    drop(strangers_.begin(), "a caller that did not finish its handshake within 2 s");
  return arrived;
}

}  // namespace yoke::net
