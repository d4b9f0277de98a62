// Moves bytes of messages between ranks, without blocking. MessengerCore is written against this interface.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"

namespace yoke::comm::messages {

enum class WireType : uint8_t {
  kRequest = 1,  // expects an answer
  kTell = 2,     // expects none
  kAnswer = 3,
  kRefusal = 4,  // an answer whose payload is the reason for the refusal
};

// Precedes every payload on the wire.
struct WireHead {
  uint64_t id = 0;     // of the request, chosen by the requester
  uint64_t bytes = 0;  // of the payload
  uint16_t kind = 0;
  WireType type = WireType::kRequest;
  uint8_t head_bytes = 0;
  uint32_t unused = 0;
  std::array<std::byte, 64> head{};
};
static_assert(sizeof(WireHead) == 88);

// A message to be sent.
struct Outgoing {
  WireHead head;
  std::span<const std::byte> payload;  // must stay valid until the message is written or dropped
  std::vector<std::byte> own;          // owns the payload if nobody else does
  std::function<void()> sent;          // called once the payload is no longer needed; may be empty
  uint64_t offset = 0;                 // bytes written, used by the transport
  uint64_t state = 0;                  // 0: not started; used by the transport
  bool started() const { return state != 0; }
};

// Functions that take a peer throw CommError once it is lost. Writes to one peer come from one thread at a
// time; everything else from the messenger's thread only.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const std::string& name() const = 0;
  // true: reads from a peer and writes to it must not run concurrently.
  virtual bool one_at_a_time() const = 0;

  // Writes as much as possible. True once the message's memory is free again; otherwise call it again with
  // the same message.
  virtual bool write(int peer, Outgoing& message) = 0;
  // Drops all state of the peer; memory of unwritten messages is not accessed afterwards.
  virtual void close(int peer) = 0;
  // Flushes after a series of writes, which may have been batched. True if nothing is left.
  virtual bool push(int peer) = 0;

  // Head of the next message, the same until its payload has been read. nullptr: none has arrived.
  virtual const WireHead* next(int peer) = 0;
  // Continues reading the payload into the same memory. True once it is complete.
  virtual bool read(int peer, std::span<std::byte> into) = 0;

  // Alternative to read() for payloads of at most in_place_limit() bytes: the payload inside the transport's
  // own memory once it is complete (nullptr: not yet), valid until consume().
  virtual size_t in_place_limit() const { return 0; }
  virtual const std::byte* payload_in_place(int) { return nullptr; }
  virtual void consume(int) {}

  // Sleeps until data may have arrived, a peer with has_unwritten[peer] may accept more, wake(), or a
  // timeout.
  virtual void wait(const std::vector<bool>& has_unwritten, double seconds) = 0;
  virtual void wake() = 0;  // any thread
  // Detects peers that died without closing. Does not throw; the next use of the peer does.
  virtual void look_for_deaths() = 0;

  // Restart count of a peer that has reconnected; 0: it has not. The peer must then be close()d and
  // reopen()ed.
  virtual int returned(int peer) = 0;
  virtual void reopen(int peer) = 0;  // throws CommError
  // Whether this peer was not there when the transport was created, and may join later.
  virtual bool is_absent(int) const { return false; }
};

}  // namespace yoke::comm::messages
