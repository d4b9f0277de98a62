// An authenticated connection: ordered frames in both directions, without blocking.
//
// First both sides prove that they know the job's secret (HMAC-SHA256 over fresh nonces, job id, generation,
// purpose and claimed rank); keys for each direction are derived from it. Every header then carries a
// truncated MAC and a sequence number, every payload a CRC32C, or both are encrypted (AES-128-GCM). One
// thread at a time per connection; different connections are independent.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/net/address.h"
#include "yoke/net/frame.h"
#include "yoke/net/secret.h"

namespace yoke::net {

enum class Protection : uint8_t {
  kIntegrity,  // header MAC, payload CRC32C
  kEncrypted,  // AES-128-GCM over header and payload
  kNone,       // --insecure: header CRC only, payloads unchecked, no authentication
};

const char* to_string(Protection protection);  // "integrity", "encrypted", "none"

// What both ends must agree on.
struct JobTicket {
  std::string job_id;
  uint32_t generation = 0;
  Secret secret = Secret::random();
  Protection protection = Protection::kIntegrity;
  int rank = -1;  // rank of the holder: connections for another rank are refused; -1: accepts all
};

// Identity and purpose of the caller: sent in the handshake and covered by its proof.
struct Introduction {
  int rank = -1;        // -1: not a rank (launcher, tool)
  std::string purpose;  // "control", "data", "messages"; at most 32 characters
  uint64_t group = 0;   // of a communicator
  uint32_t lane = 0;    // one of several connections for the same purpose
  int callee = -1;      // the rank that is called; -1: any
};

class Connection {
 public:
  ~Connection();

  int fd() const;
  const Introduction& peer() const;      // verified by the handshake; on the calling side rank = callee
  const std::string& peer_text() const;  // "rank 2 at 10.0.0.2:4711"

  // ---- sending ----
  // Queues a frame. The payload is not copied: it must stay valid until flush() returns true.
  void post(const FrameHeader& header, Bytes payload);
  // Queues a frame with a copy of its payload (for small ones).
  void post_copy(const FrameHeader& header, Bytes payload);
  // Writes as much as the socket accepts. True once nothing is left to send.
  bool flush();
  bool has_unsent() const;
  size_t unsent_frames() const;

  // ---- receiving ----
  // The next header, once it has arrived completely; the same until its payload has been received. nullptr:
  // not yet.
  const FrameHeader* next_header();
  // Receives the payload of next_header() into `into` (exactly `length` bytes). True once it is complete and
  // its checksum is valid; until then call again with the same memory.
  bool receive(std::span<std::byte> into);

  // Sending and receiving throw CommError: closed by the peer, reset, wrong MAC, checksum, sequence number or
  // generation (each with its own text and the peer's name). The connection is then dead, and later calls
  // throw the same error.

  // ---- waiting (poll) ----
  // Events to poll for: POLLIN, POLLOUT or both. Reads are buffered: before polling for POLLIN call
  // next_header() (and receive()) until they return nothing.
  short poll_events(bool want_read) const;
  // Blocks until one frame is complete; CommError at the deadline. For control traffic and tests.
  std::vector<std::byte> receive_frame(FrameHeader& header, Deadline deadline);
  void flush_all(Deadline deadline);

  uint64_t bytes_sent() const;  // payload
  uint64_t wire_bytes_sent() const;

  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// connect_to() and introduce(), repeated until the deadline while the other side is not listening yet or too
// busy to answer. A refusal is final.
std::unique_ptr<Connection> dial(const Address& address, const JobTicket& ticket, const Introduction& self,
                                 Deadline deadline);

// The calling side of the handshake; blocks at most until the deadline. Throws Error with kRendezvous:
// refused (HandshakeRefused: wrong key, other job, generation or version), closed, timed out.
class HandshakeRefused : public Error {
 public:
  using Error::Error;
};
std::unique_ptr<Connection> introduce(Descriptor socket, const JobTicket& ticket, const Introduction& self,
                                      Deadline deadline);

// The listening side, as a non-blocking state machine: call advance() when the socket is readable. Reads at
// most 4 KB before the proof; the caller must drop it once expired(), after 2 s.
class PendingHandshake {
 public:
  // `ticket` must outlive it.
  PendingHandshake(Descriptor socket, const JobTicket& ticket);
  ~PendingHandshake();
  int fd() const;
  bool expired() const;
  enum class State { kWaiting, kDone, kRefused };
  State advance();
  const std::string& refusal() const;  // in full detail, for our log only
  std::unique_ptr<Connection> take();  // after kDone
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Accepts and authenticates connections on its own thread, and keeps them until they are taken.
// Unauthenticated and idle connections cost only their slot (at most `kMaxWaiting`, oldest dropped first).
// Thread-safe.
class Acceptor {
 public:
  static constexpr int kMaxWaiting = 256;
  // Connections of one rank that were not taken; beyond this its oldest is closed.
  static constexpr int kMaxUnclaimed = 256;
  Acceptor(const Address& address, const JobTicket& ticket);
  ~Acceptor();
  Address address() const;
  // Waits for the connection with this introduction. Throws CommError naming it at the deadline.
  std::unique_ptr<Connection> take(const Introduction& wanted, Deadline deadline);
  // Like take(), but nullptr at the deadline. Throws CommError if accepting has failed.
  std::unique_ptr<Connection> take_if(const Introduction& wanted, Deadline deadline);
  // A connection that has already arrived and that `match` accepts; nullptr: none.
  std::unique_ptr<Connection> take_now(const std::function<bool(const Introduction&)>& match);
  // Any connection of that purpose; nullptr at the deadline.
  std::unique_ptr<Connection> take_any(const std::string& purpose, Deadline deadline);
  int64_t refused() const;  // number of refused connections
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::net
