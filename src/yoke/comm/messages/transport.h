// How the bytes of messages get from one rank to another; what MessengerCore stands on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"

namespace yoke::comm::messages {

enum class WireType : uint8_t {
  kRequest = 1,  // wants an answer
  kTell = 2,     // does not
  kAnswer = 3,
  kRefusal = 4,  // an answer whose payload says why there is none
};

// What goes before a payload.
struct WireHead {
  uint64_t id = 0;     // of the request, chosen by who asks
  uint64_t bytes = 0;  // of the payload
  uint16_t kind = 0;
  WireType type = WireType::kRequest;
  uint8_t head_bytes = 0;
  uint32_t unused = 0;
  std::array<std::byte, 64> head{};
};
static_assert(sizeof(WireHead) == 88);

// A message on its way out.
struct Outgoing {
  WireHead head;
  std::span<const std::byte> payload;  // stays until the message is written or dropped
  std::vector<std::byte> own;          // the payload where nobody else keeps it
  std::function<void()> sent;          // may be empty
  uint64_t offset = 0;                 // the transport's notes
  uint64_t state = 0;
  bool started() const { return state != 0; }
};

// Peers are other ranks. Functions that name a peer throw CommError when it is lost, and again after that.
// Writes to one peer come from one thread at a time; everything else from the messenger's thread.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const std::string& name() const = 0;
  // Whether reads exclude writes to the same peer.
  virtual bool one_at_a_time() const = 0;

  // Moves what it can. True when the message's memory is free again; otherwise call it again with the same
  // one.
  virtual bool write(int peer, Outgoing& message) = 0;
  // Forgets everything about the peer: memory of messages that were not written is not touched again.
  virtual void close(int peer) = 0;
  // After some writes: lets go what was held back to travel together. True when nothing is left.
  virtual bool push(int peer) = 0;

  // The next message, once its head is there; the same until its payload has been read. nullptr: not yet.
  virtual const WireHead* next(int peer) = 0;
  // Continues to read the payload into the same memory. True when it is complete.
  virtual bool read(int peer, std::span<std::byte> into) = 0;
  // Instead of read(): throws the payload away piece by piece. True when it has passed.
  virtual bool skip(int peer) = 0;

  // Instead of read(), for payloads up to this size: where the payload lies once all of it is there (nullptr:
  // not yet), until it is consumed.
  virtual size_t in_place_limit() const { return 0; }
  virtual const std::byte* payload_in_place(int) { return nullptr; }
  virtual void consume(int) {}

  // Sleeps until something may have come, or there may be room for peers with has_unwritten[peer], or wake().
  virtual void wait(const std::vector<bool>& has_unwritten, double seconds) = 0;
  virtual void wake() = 0;  // any thread
  // Looks for peers that have died without a word. Throws nothing; the next use of the peer does.
  virtual void look_for_deaths() = 0;

  // The life of a peer that was started again and has called; 0: none has. The peer must be closed then and
  // opened again, with what it was before forgotten.
  virtual int returned(int peer) = 0;
  virtual void reopen(int peer) = 0;  // throws CommError
};

}  // namespace yoke::comm::messages
