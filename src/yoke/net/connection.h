// An authenticated connection: frames in order, both ways, without ever blocking.
//
// Before anything else is read both sides prove that they hold the job's secret (HMAC-SHA256 over fresh
// nonces, job id, generation, purpose and claimed rank); keys for each direction are derived from it. Every
// header then carries a truncated MAC and a sequence number, every payload a CRC32C, or both are encrypted
// (AES-128-GCM). One thread at a time; different connections are independent.
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
  kNone,       // --insecure: header CRC only, payloads unchecked, no proof of the key
};

const char* to_string(Protection protection);  // "integrity", "encrypted", "none"

// What both ends must agree on.
struct JobTicket {
  std::string job_id;
  uint32_t generation = 0;
  Secret secret = Secret::random();
  Protection protection = Protection::kIntegrity;
  int rank = -1;  // who holds this copy: calls meant for another rank are refused; -1: takes all
};

// Who calls, and what for: told in the handshake, covered by its proof.
struct Introduction {
  int rank = -1;        // -1: not a rank (launcher, tool)
  std::string purpose;  // "control", "data", "messages"; at most 32 characters
  uint64_t group = 0;   // of a communicator
  uint32_t lane = 0;    // one of several connections for the same purpose
  int callee = -1;      // the rank that is called; -1: whoever listens there
};

class Connection {
 public:
  ~Connection();

  int fd() const;
  const Introduction& peer() const;      // as proven by the handshake; on the calling side rank = callee
  const std::string& peer_text() const;  // "rank 2 at 10.0.0.2:4711"

  // ---- sending ----
  // Queues a frame. The payload is not copied: it must stay until flush() has reported that all is sent.
  void post(const FrameHeader& header, Bytes payload);
  // Queues a frame with a copy of its payload (small ones).
  void post_copy(const FrameHeader& header, Bytes payload);
  // Hands the socket what it takes now. True when nothing is left to send.
  bool flush();
  bool has_unsent() const;
  size_t unsent_frames() const;

  // ---- receiving ----
  // Reads the next header if it has arrived completely; keeps returning it until its payload has been
  // received. nullptr: not there yet.
  const FrameHeader* next_header();
  // Receives the payload of next_header() into `into` (length bytes exactly). True when it is complete and
  // its checksum is right; the next call of next_header() then goes on to the next frame. Call again with the
  // same memory until then.
  bool receive(std::span<std::byte> into);

  // Both throw CommError: closed by the peer, reset, wrong MAC, checksum, sequence, generation (each with its
  // own text and the peer's name). The connection is then dead, and says the same again.

  // ---- waiting (poll) ----
  // What to wait for: POLLIN, POLLOUT or both. Reads run ahead: before waiting for POLLIN ask next_header()
  // (and receive()) until they have nothing.
  short poll_events(bool want_read) const;
  // Blocks until one frame is complete or the deadline passes (CommError). For control traffic and tests.
  std::vector<std::byte> receive_frame(FrameHeader& header, Deadline deadline);
  void flush_all(Deadline deadline);

  uint64_t bytes_sent() const;  // payload
  uint64_t wire_bytes_sent() const;

  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// connect_to() and introduce(), again and again until the deadline while the other side is not there yet or
// too busy with strangers to answer. A refusal is final.
std::unique_ptr<Connection> dial(const Address& address, const JobTicket& ticket, const Introduction& self,
                                 Deadline deadline);

// The calling side of the handshake; blocks at most until the deadline. Throws Error with kRendezvous:
// refused (wrong key, other job or generation, other version: HandshakeRefused), closed, timed out.
class HandshakeRefused : public Error {
 public:
  using Error::Error;
};
std::unique_ptr<Connection> introduce(Descriptor socket, const JobTicket& ticket, const Introduction& self,
                                      Deadline deadline);

// The listening side, as a state machine that never blocks: feed it when the socket is readable. At most 4 KB
// are read and 2 s pass before the proof; the caller drops it when `expired()`.
class PendingHandshake {
 public:
  // `ticket` must outlive it.
  PendingHandshake(Descriptor socket, const JobTicket& ticket);
  ~PendingHandshake();
  int fd() const;
  bool expired() const;
  enum class State { kWaiting, kDone, kRefused };
  State advance();
  const std::string& refusal() const;  // full detail, for our log only
  std::unique_ptr<Connection> take();  // after kDone
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Accepts and authenticates connections in a thread of its own, and keeps them until somebody asks.
// Strangers, held bytes and idle connections cost nothing but their slot (at most `kMaxWaiting` at a time,
// the oldest goes first).
class Acceptor {
 public:
  static constexpr int kMaxWaiting = 256;
  // Connections of one rank that nobody has asked for; with more, its first is closed.
  static constexpr int kMaxUnclaimed = 256;
  Acceptor(const Address& address, const JobTicket& ticket);
  ~Acceptor();
  Address address() const;
  // The connection that introduced itself so; waits for it. Throws CommError naming it when the deadline
  // passes.
  std::unique_ptr<Connection> take(const Introduction& wanted, Deadline deadline);
  // The same, nullptr when it has not come within the deadline.
  std::unique_ptr<Connection> take_if(const Introduction& wanted, Deadline deadline);
  // One that `match` accepts, of those that have come; nullptr: there is none.
  std::unique_ptr<Connection> take_now(const std::function<bool(const Introduction&)>& match);
  // Any connection of that purpose, nullptr when none has come within the deadline.
  std::unique_ptr<Connection> take_any(const std::string& purpose, Deadline deadline);
  int64_t refused() const;  // how many were turned away
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::net
