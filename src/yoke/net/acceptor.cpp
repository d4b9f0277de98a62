#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/net/gate.h"

namespace yoke::net {
namespace {

bool same_call(const Introduction& a, const Introduction& b) {
  return a.rank == b.rank && a.purpose == b.purpose && a.group == b.group && a.lane == b.lane;
}

}  // namespace

struct Acceptor::Impl {
  Impl(const Address& where, const JobTicket& ticket)
      : gate(where, ticket), address(gate.address()), stop(::eventfd(0, EFD_CLOEXEC)) {
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
      pollfd waits[] = {{gate.fd(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
      ::poll(waits, 2, gate.next_ms());
      if ((waits[1].revents & POLLIN) != 0) return;
      for (auto& connection : gate.pump()) add(std::move(connection));
      refused = gate.refused();
    }
  } catch (const std::exception& error) {
    // Passed on to callers of take().
    std::lock_guard lock(mutex);
    broken = error.what();
    arrived.notify_all();
  }

  void add(std::unique_ptr<Connection> connection) {
    std::lock_guard lock(mutex);
    // A second connection with the same introduction means that the caller has given up the first one.
    std::erase_if(ready, [&](const auto& old) { return same_call(old->peer(), connection->peer()); });
    const int rank = connection->peer().rank;
    auto of_rank = [&](const auto& one) { return one->peer().rank == rank; };
    if (std::count_if(ready.begin(), ready.end(), of_rank) >= Acceptor::kMaxUnclaimed) {
      log::warn("{} opened {} connections that were not expected: the oldest is dropped",
                connection->peer_text(), Acceptor::kMaxUnclaimed);
      ready.erase(std::find_if(ready.begin(), ready.end(), of_rank));
    }
    ready.push_back(std::move(connection));
    arrived.notify_all();
  }

  template <class Match>
  std::unique_ptr<Connection> take(Match&& match, Deadline deadline) {
    std::unique_lock lock(mutex);
    std::unique_ptr<Connection> found;
    arrived.wait_for(lock, std::chrono::duration<double>(deadline.left()), [&] {
      auto at = std::find_if(ready.begin(), ready.end(), [&](const auto& one) { return match(one->peer()); });
      if (at == ready.end()) return !broken.empty();
      found = std::move(*at);
      ready.erase(at);
      return true;
    });
    if (found == nullptr && !broken.empty()) throw CommError("accepting connections failed: {}", broken);
    return found;
  }

  Gate gate;  // used by the thread only
  Address address;
  Descriptor stop;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::unique_ptr<Connection>> ready;
  std::string broken;
  std::atomic<int64_t> refused{0};
  std::thread thread;
};

Acceptor::Acceptor(const Address& address, const JobTicket& ticket)
    : impl_(std::make_unique<Impl>(address, ticket)) {}
Acceptor::~Acceptor() = default;

Address Acceptor::address() const {
  return impl_->address;
}

int64_t Acceptor::refused() const {
  return impl_->refused;
}

std::unique_ptr<Connection> Acceptor::take_if(const Introduction& wanted, Deadline deadline) {
  return impl_->take([&](const Introduction& peer) { return same_call(peer, wanted); }, deadline);
}

std::unique_ptr<Connection> Acceptor::take_now(const std::function<bool(const Introduction&)>& match) {
  return impl_->take(match, Deadline::after(0));
}

std::unique_ptr<Connection> Acceptor::take(const Introduction& wanted, Deadline deadline) {
  auto connection = take_if(wanted, deadline);
  if (connection == nullptr)
    throw CommError("no '{}' connection from rank {} (group {}, lane {}) at {} within {:.1f} s",
                    wanted.purpose, wanted.rank, wanted.group, wanted.lane, impl_->address.text(),
                    deadline.limit());
  return connection;
}

std::unique_ptr<Connection> Acceptor::take_any(const std::string& purpose, Deadline deadline) {
  return impl_->take([&](const Introduction& peer) { return peer.purpose == purpose; }, deadline);
}

}  // namespace yoke::net
