// Requests and replies between named peers: the ground parameter servers and coordination stand on.
//
// Messages have a kind out of a closed set that both ends know, up to 64 bytes of head (a plain struct) and a
// payload of plain memory. There are no serialised objects and no function names on the wire. Payloads arrive
// in memory that the receiver chose, without a copy in between. A sender whose peer does not keep up waits
// (back-pressure). Thread-safe.
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

// What a handler answers. `payload` must stay until `sent` is called (it may be empty).
struct Reply {
  Message message;
  std::function<void()> sent;
};

class Messenger {
 public:
  // Where the payload of a message of `bytes` bytes shall go; called before it is read or anything is
  // allocated for it. An empty span: into memory of the messenger, valid during the handler. Throws where so
  // many bytes were never agreed on: that ends the connection to `from`. Without a Place at most
  // kMostUnplaced bytes are taken.
  static constexpr size_t kMostUnplaced = size_t{64} << 20;
  using Place = std::function<std::span<std::byte>(int from, const Message& head_only, size_t bytes)>;
  // A request came in. Answer now or later (from any thread) by calling `answer` exactly once.
  using Answer = std::function<void(Reply)>;
  using Handler = std::function<void(int from, const Message& request, Answer answer)>;
  using PeerLost = std::function<void(int peer, const std::string& why)>;
  // A peer that was lost has been started again and is connected; `life` counts how often. Comes after the
  // loss of its life before, and before its first request.
  using PeerBack = std::function<void(int peer, int life)>;

  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& backend() const = 0;  // "shm", "tcp"

  // Before the first request. Called on the messenger's thread: must not wait. A handler that throws answers
  // its request with the reason; any other callback that throws is logged, and nobody else hears of it.
  virtual void serve(Place place, Handler handler) = 0;
  virtual void on_peer_lost(PeerLost callback) = 0;
  virtual void on_peer_back(PeerBack callback) = 0;

  // Sends `request` and calls `done` with the reply (on the messenger's thread) once it is there; its payload
  // went into `into` when that is large enough (CommError in the future otherwise). The request's payload
  // must stay until then.
  virtual std::future<Message> ask(int peer, const Message& request, std::span<std::byte> into,
                                   Deadline deadline) = 0;
  // Like ask() without a thread hop for the caller: `done(reply, error)`, error empty when all is well.
  using Done = std::function<void(const Message& reply, const std::string& error)>;
  virtual void ask_then(int peer, const Message& request, std::span<std::byte> into, Deadline deadline,
                        Done done) = 0;
  // Without a reply. Returns when the payload may be changed again.
  virtual void tell(int peer, const Message& message, Deadline deadline) = 0;
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
