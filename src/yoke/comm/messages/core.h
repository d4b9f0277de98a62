// The messenger, over any Transport. See core_send.cpp for the sending half, deadlines and lost peers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "yoke/comm/messages/messengers.h"
#include "yoke/comm/messages/transport.h"

namespace yoke::comm::messages {

// Thread-safe as Messenger promises. Functions marked (M) run on the messenger's thread only.
class MessengerCore final : public Messenger {
 public:
  MessengerCore(const MessengerSetup& setup, std::unique_ptr<Transport> transport);
  ~MessengerCore() override;

  int rank() const override { return setup_.rank; }
  int size() const override { return setup_.size; }
  const std::string& backend() const override { return transport_->name(); }
  bool is_lost(int peer) const override;
  void serve(Place place, Handler handler) override;
  void on_peer_lost(PeerLost callback) override;
  void on_peer_back(PeerBack callback) override;
  std::future<Message> ask(int peer, const Message& request, std::span<std::byte> into,
                           Deadline deadline) override;
  void ask_then(int peer, const Message& request, std::span<std::byte> into, Deadline deadline,
                Done done) override;
  void tell(int peer, const Message& message, Deadline deadline) override;
  void run_soon(std::function<void()> task) override;
  void run_later(double seconds, std::function<void()> task) override;

  // Messages queued for one peer; senders with a deadline block beyond this (back-pressure).
  static constexpr size_t kMostQueued = 256;

 private:
  // A request that waits for its reply.
  struct Ask {
    std::span<std::byte> into;
    Done done;
    Deadline deadline;
  };
  // State of one peer. `writing` and `asking` are never held together.
  struct Peer {
    std::mutex writing;  // guards `queue` and the write side of the transport
    std::deque<Outgoing> queue;
    std::condition_variable room;
    std::atomic<bool> waits{false};  // `queue` is not empty, or the transport holds unsent bytes
    std::mutex asking;
    std::unordered_map<uint64_t, Ask> asks;
    std::string lost;               // reason; empty while connected; guarded by `asking`
    uint64_t asked = 0;             // largest reply buffer so far; guarded by `asking`
    std::atomic<bool> gone{false};  // nothing is written to this peer any more
    // Used by the messenger's thread only: whether the loss was reported, and the message being read.
    bool closed = false;
    bool reading = false;
    bool in_place = false;  // the payload is used inside the transport's memory
    std::span<std::byte> target;
    std::unique_ptr<std::byte[]> buffer;
    size_t buffer_bytes = 0;
    std::string refused;  // why the payload is discarded; empty: it is not
  };

  // Starts the thread on first use. loop() runs work() until stop_, and loses all peers if it throws.
  void start();
  void loop();
  void work();
  // (M) Run what run_soon() was given, and what is due of run_later().
  void run_tasks();
  void run_due(double now);
  // (M) Reads from and writes to one peer without blocking; true if anything moved.
  bool turn(int peer);
  // (M) Reading: a head is checked, a destination chosen, the payload read into it, then the message
  // delivered.
  bool read_some(int peer);
  bool read_message(int peer);
  void check_head(int peer, const WireHead& head) const;
  void choose_target(int peer, const WireHead& head);
  void choose_place(int peer, const WireHead& head);
  uint64_t choose_answer_place(int peer, const WireHead& head);
  void deliver(int peer, const WireHead& head, std::span<const std::byte> payload);
  void deliver_request(int peer, const WireHead& head, std::span<const std::byte> payload);
  void deliver_answer(int peer, const WireHead& head, std::span<const std::byte> payload);
  // Any thread: replies to a request, or refuses it with a text.
  void answer(int peer, uint64_t id, const Reply& reply);
  void refuse(int peer, uint64_t id, const std::string& why);

  // Any thread: enqueues a message; other threads than the messenger's also write it. Blocks while the queue
  // is full, if a deadline is given.
  void post(int peer, Outgoing message, const Deadline* deadline);
  bool drain(int peer, std::vector<std::function<void()>>& sent);
  void drain_now(int peer);
  // Removes a queued message; false if it is partially written.
  bool withdraw(int peer, uint64_t id);
  // (M) Deadlines, dead and rejoined peers.
  void expire(double now);
  void expire_peer(int peer);
  // Any thread: counts the peer as lost although its connection is open.
  void forsake(int peer, const std::string& why);
  // Any thread: stops writing to the peer. lose() (M) does the rest: closes it and fails its requests.
  void give_up(int peer, const std::string& symptom);
  void lose(int peer, const std::string& symptom);
  // (M) Reopens a peer that was restarted.
  void welcome(int peer, int life);
  std::string lost_text(int peer) const;
  void check(int peer, const Message& message) const;
  bool on_own_thread() const { return std::this_thread::get_id() == own_thread_.load(); }

  const MessengerSetup setup_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<Peer>> peers_;
  Place place_;
  Handler handler_;
  PeerLost peer_lost_;
  PeerBack peer_back_;
  std::mutex starting_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  std::mutex tasks_mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded by tasks_mutex_
  std::atomic<bool> has_tasks_{false};
  std::multimap<double, std::function<void()>> later_;  // by now_seconds(); guarded by tasks_mutex_
  std::atomic<std::thread::id> own_thread_{};
  std::atomic<uint64_t> next_id_;
  double last_look_ = 0;
  std::thread thread_;
  std::shared_ptr<void> forsaken_;  // goes first: it calls this object
};

// Runs `call`; returns the text of what it throws, empty if nothing.
template <class Call>
std::string attempt(const Call& call) {
  try {
    call();
    return "";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an exception without a message" : error.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

void log_thrown(const char* what, const std::string& thrown);

// Runs a user's callback. Logs what it throws, because other messages must still be served.
template <class Call>
void call_back(const char* what, const Call& callback) noexcept {
  std::string thrown = attempt(callback);
  if (!thrown.empty()) log_thrown(what, thrown);
}

// Seconds between two checks of deadlines and dead peers.
inline constexpr double kLookSeconds = 0.01;

}  // namespace yoke::comm::messages
