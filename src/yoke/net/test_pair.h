// Two ends of an authenticated connection in one process, with a place in between for tests that tamper.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/net/connection.h"

namespace yoke::net::testing {

inline std::pair<Descriptor, Descriptor> socket_pair() {
  int fds[2];
  YOKE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

inline JobTicket ticket_of(Protection protection = Protection::kIntegrity) {
  JobTicket ticket;
  ticket.job_id = "test job";
  ticket.generation = 3;
  ticket.secret = Secret::from_text(std::string(64, 'a'));
  ticket.protection = protection;
  return ticket;
}

struct Pair {
  std::unique_ptr<Connection> caller;
  std::unique_ptr<Connection> listener;
  std::string caller_error;
  std::string listener_error;
};

// Runs the listening side until it is done with the caller; bounded by the handshake's own limits.
inline void listen_on(Descriptor socket, const JobTicket& ticket, Pair& pair) {
  PendingHandshake pending(std::move(socket), ticket);
  auto state = PendingHandshake::State::kWaiting;
  while (state == PendingHandshake::State::kWaiting && !pending.expired()) {
    state = pending.advance();
    std::this_thread::yield();
  }
  if (state == PendingHandshake::State::kDone)
    pair.listener = pending.take();
  else
    pair.listener_error = pending.expired() ? "expired" : pending.refusal();
}

inline Pair shake_hands(const JobTicket& caller, const JobTicket& listener, Introduction self = {0, "test"},
                        std::pair<Descriptor, Descriptor> sockets = socket_pair()) {
  Pair pair;
  auto calling = std::async(std::launch::async, [&] {
    try {
      pair.caller = introduce(std::move(sockets.first), caller, self, Deadline::after(10));
    } catch (const Error& error) {
      pair.caller_error = error.what();
    }
  });
  listen_on(std::move(sockets.second), listener, pair);
  calling.get();
  return pair;
}

inline Pair connected_pair(Protection protection = Protection::kIntegrity) {
  return shake_hands(ticket_of(protection), ticket_of(protection));
}

// A connection whose bytes pass through the test's hands.
class TappedPair {
 public:
  explicit TappedPair(Protection protection) {
    auto [caller, near] = socket_pair();
    auto [far, listener] = socket_pair();
    near_ = std::move(near);
    far_ = std::move(far);
    std::atomic<bool> done{false};
    std::jthread relay([&] {
      while (!done) {
        forward(near_.get(), far_.get());
        forward(far_.get(), near_.get());
        std::this_thread::yield();
      }
    });
    pair_ = shake_hands(ticket_of(protection), ticket_of(protection), {0, "test"},
                        {std::move(caller), std::move(listener)});
    done = true;
    relay.join();
  }

  Connection& caller() { return *pair_.caller; }
  Connection& listener() { return *pair_.listener; }

  // One frame as it looks on the wire.
  std::vector<std::byte> capture(const FrameHeader& header, Bytes payload) {
    caller().post(header, payload);
    caller().flush_all(Deadline::after(10));
    return drain(near_.get());
  }
  void inject(Bytes bytes) { write_all(far_.get(), bytes); }
  void inject_to_caller(Bytes bytes) { write_all(near_.get(), bytes); }
  void close_far() { far_.reset(); }

 private:
  static std::vector<std::byte> drain(int fd) {
    std::vector<std::byte> all(4 << 20);
    size_t have = 0;
    ssize_t got;
    while ((got = ::recv(fd, all.data() + have, all.size() - have, MSG_DONTWAIT)) > 0)
      have += static_cast<size_t>(got);
    all.resize(have);
    return all;
  }
  static void write_all(int fd, Bytes bytes) {
    YOKE_CHECK(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                   static_cast<ssize_t>(bytes.size()),
               "the socket is full");
  }
  static void forward(int from, int to) {
    std::byte buffer[4096];
    ssize_t got = ::recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) write_all(to, Bytes(buffer, static_cast<size_t>(got)));
  }

  Descriptor near_, far_;
  Pair pair_;
};

}  // namespace yoke::net::testing
