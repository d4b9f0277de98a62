// Requests and replies between ranks. Parameter servers are built on it.
//
// A message has a kind (from a closed set known to both ends), up to 64 bytes of head (a trivially copyable
// struct) and a payload of plain memory; no serialised objects, no function names. Payloads are received
// directly into memory chosen by the receiver. Back-pressure: a sender blocks while its peer does not keep
// up. Thread-safe.
//
// Callbacks run on the messenger's thread and must not block. Exceptions do not affect other messages: those
// of a Place or a Handler refuse the message with the exception's text; those of Done, PeerLost, PeerBack and
// Reply::sent are logged. A peer that sends an invalid message counts as lost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"

namespace yoke::comm {

struct Message {
  uint16_t kind = 0;
  uint8_t head_bytes = 0;
  std::array<std::byte, 64> head{};
  std::span<const std::byte> payload;

  template <class T>
  void set_head(const T& value);
  template <class T>
  T get_head() const;  // throws CommError when sizes differ
};

// A handler's answer. `payload` must stay valid until `sent` is called (`sent` may be empty).
struct Reply {
  Message message;
  std::function<void()> sent{};
  std::string refusal{};  // not empty: the request is refused with this text instead
};

class Messenger {
 public:
  // Returns where the payload of a message of `bytes` bytes is to be stored; called before it is read. Empty
  // span: memory of the messenger (at most MessengerSetup::largest bytes), valid until the handler returns.
  // Throw to refuse the message, for example one of unexpected size.
  using Place = std::function<std::span<std::byte>(int from, const Message& head_only, size_t bytes)>;
  // Handles a request. Call `answer` exactly once, now or later, from any thread.
  using Answer = std::function<void(Reply)>;
  using Handler = std::function<void(int from, const Message& request, Answer answer)>;
  // A peer has failed or disconnected; its requests in flight have failed.
  using PeerLost = std::function<void(int peer, const std::string& why)>;
  // A lost peer was restarted and is connected again; `life` is its restart count. Called after PeerLost of
  // the previous life and before the first request of the new one.
  using PeerBack = std::function<void(int peer, int life)>;

  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& backend() const = 0;  // "shm", "tcp"
  // Whether requests to this peer fail because it is lost: true before the Done of its requests in flight and
  // before PeerLost. Any thread.
  virtual bool is_lost(int peer) const = 0;

  // Call these before the first request, serve() last: it starts the messenger's thread.
  virtual void serve(Place place, Handler handler) = 0;
  virtual void on_peer_lost(PeerLost callback) = 0;
  virtual void on_peer_back(PeerBack callback) = 0;

  // Sends `request`; the future holds the reply or a CommError (peer lost, deadline, refused, reply larger
  // than `into`). The payload of the reply is written to `into`. `into` and the request's payload must stay
  // valid until the future is ready. Throws ConfigError for an invalid peer or kind.
  virtual std::future<Message> ask(int peer, const Message& request, std::span<std::byte> into,
                                   Deadline deadline) = 0;
  // Like ask(), but calls `done(reply, error)` on the messenger's thread; `error` is empty on success.
  using Done = std::function<void(const Message& reply, const std::string& error)>;
  virtual void ask_then(int peer, const Message& request, std::span<std::byte> into, Deadline deadline,
                        Done done) = 0;
  // Sends a message that has no reply. Returns once the payload may be reused. Throws CommError if the peer
  // is lost or does not accept the message before the deadline.
  virtual void tell(int peer, const Message& message, Deadline deadline) = 0;
  // Runs `task` on the messenger's thread, between two messages; never if the messenger ends before.
  // Exceptions are logged. Any thread.
  virtual void run_soon(std::function<void()> task) = 0;
  // The same, once `seconds` have passed.
  virtual void run_later(double seconds, std::function<void()> task) = 0;
};

template <class T>
void Message::set_head(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64);
  __builtin_memcpy(head.data(), &value, sizeof(T));
  head_bytes = sizeof(T);
}

template <class T>
T Message::get_head() const {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64);
  if (head_bytes != sizeof(T))
    throw CommError("message of kind {}: its head has {} bytes, not {}", kind, head_bytes, sizeof(T));
  T value;
  __builtin_memcpy(&value, head.data(), sizeof(T));
  return value;
}

}  // namespace yoke::comm
