// The messenger itself, over any transport.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "yoke/comm/messages/messengers.h"
#include "yoke/comm/messages/transport.h"

namespace yoke::comm::messages {

class MessengerCore final : public Messenger {
 public:
  MessengerCore(const MessengerSetup& setup, std::unique_ptr<Transport> transport);
  ~MessengerCore() override;

  int rank() const override { return setup_.rank; }
  int size() const override { return setup_.size; }
  const std::string& backend() const override { return transport_->name(); }
  void serve(Place place, Handler handler) override;
  void on_peer_lost(PeerLost callback) override;
  void on_peer_back(PeerBack callback) override;
  std::future<Message> ask(int peer, const Message& request, std::span<std::byte> into,
                           Deadline deadline) override;
  void ask_then(int peer, const Message& request, std::span<std::byte> into, Deadline deadline,
                Done done) override;
  void tell(int peer, const Message& message, Deadline deadline) override;

  // Messages that wait to be written to one peer; more make their sender wait.
  static constexpr size_t kMostQueued = 256;

 private:
  struct Ask {
    std::span<std::byte> into;
    Done done;
    Deadline deadline;
  };
  struct Peer {
    std::mutex writing;  // the transport's side, and `queue`
    std::deque<Outgoing> queue;
    std::condition_variable room;
    std::atomic<bool> waits{false};  // `queue` is not empty
    std::mutex asking;
    std::unordered_map<uint64_t, Ask> asks;
    std::string lost;               // why; under `asking`
    std::atomic<bool> gone{false};  // nothing is written to it any more
    // Of the messenger's thread: whether everybody knows that it is gone, and the message that is being read.
    bool closed = false;
    bool reading = false;
    bool in_place = false;  // the payload is used where the transport has it
    bool skips = false;     // the payload is thrown away
    std::span<std::byte> target;
    std::vector<std::byte> buffer;
    std::string refused;  // why its payload is thrown away
  };

  void start();
  void live();
  void loop();
  bool turn(int peer);
  bool read_some(int peer);
  bool read_message(int peer);
  void choose_target(int peer, const WireHead& head);
  void choose_place(int peer, const WireHead& head);
  void choose_answer_place(int peer, const WireHead& head);
  void deliver(int peer, const WireHead& head, std::span<const std::byte> payload);
  void deliver_request(int peer, const WireHead& head, std::span<const std::byte> payload);
  void deliver_answer(int peer, const WireHead& head, std::span<const std::byte> payload);
  void answer(int peer, uint64_t id, const Reply& reply);
  void refuse(int peer, uint64_t id, const std::string& why);

  void post(int peer, Outgoing message, const Deadline* deadline);
  bool drain(int peer, std::vector<std::function<void()>>& sent);
  void drain_now(int peer);
  bool withdraw(int peer, uint64_t id);
  void expire(double now);
  void expire_peer(int peer);
  void give_up(int peer, const std::string& symptom);
  void lose(int peer, const std::string& symptom);
  void welcome(int peer, int life);
  std::string lost_text(int peer);
  void finish(const Done& done, int peer, const Message& reply, const std::string& error) const;
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
  std::atomic<std::thread::id> own_thread_{};
  std::atomic<uint64_t> next_id_;
  double last_look_ = 0;
  std::thread thread_;
};

// What the exception says that is being handled, of whatever type it is.
std::string what_was_thrown();
// Calls each; what they throw is logged.
void call_all(std::vector<std::function<void()>>& callbacks);

inline constexpr size_t kMostRefusal = 64 << 10;  // bytes of text
// Between two looks at deadlines and at who has died.
inline constexpr double kLookSeconds = 0.01;

}  // namespace yoke::comm::messages
