// The two halves of a connection. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/net/connection.h"
#include "yoke/net/protect.h"

namespace yoke::net {

// State shared by both halves.
struct Link {
  Descriptor socket;
  Introduction peer;
  std::string peer_text;
  Protection protection = Protection::kIntegrity;
  uint32_t job = 0;
  uint32_t generation = 0;
  std::string broken;  // why it is dead; empty: it is alive

  // Stores the reason and throws CommError.
  [[noreturn]] void fail(const std::string& why);
  void check() const;  // throws CommError if dead
};

// Queues frames and writes them without blocking. Frames are sealed (sequence number, checksum, MAC) when
// they are sent.
class Sender {
 public:
  Sender(Link& link, const DirectionKey& key);
  // Without `copy` the payload must stay valid until empty().
  void post(const FrameHeader& header, Bytes payload, bool copy);
  bool flush();
  bool empty() const { return queue_.empty() && staged_begin_ == staged_end_; }
  size_t frames() const { return queue_.size(); }
  uint64_t payload_bytes = 0;
  uint64_t wire_bytes = 0;

 private:
  struct Outgoing {
    FrameHeader header;
    Bytes payload;
    std::vector<std::byte> large;      // a copied payload that does not fit `small`
    std::array<std::byte, 128> small;  // a copied payload
    std::array<std::byte, kFrameHeaderBytes> head;
    bool sealed = false;
    size_t sent = 0;  // of head and payload; of the payload alone when encrypted
  };
  void seal(Outgoing& frame);
  size_t collect(std::vector<iovec>& parts);
  void account(size_t bytes);
  bool flush_plain();
  bool flush_encrypted();
  void stage();
  // Bytes accepted by the socket; 0: it is full.
  size_t send(iovec* parts, size_t count);

  Link& link_;
  HeaderSeal header_seal_;
  std::optional<BlockCipher> cipher_;
  std::deque<Outgoing> queue_;
  uint64_t sequence_ = 0;
  std::vector<iovec> parts_;
  std::unique_ptr<std::byte[]> staged_;  // encrypted, not yet accepted by the socket
  size_t staged_begin_ = 0, staged_end_ = 0;
};

// Reads frames without blocking, ahead into a small buffer, payloads directly into the caller's memory.
class Receiver {
 public:
  Receiver(Link& link, const DirectionKey& key);
  const FrameHeader* next_header();
  bool receive(std::span<std::byte> into);

 private:
  bool fill();
  void accept_header();
  bool finish_frame();
  // Where the next bytes of the payload go, at most about `limit` of them.
  void layout(std::span<std::byte> into, size_t limit);
  void advance(std::span<std::byte> into, size_t bytes);
  size_t take_buffered();
  size_t read_parts(bool last);

  Link& link_;
  HeaderSeal header_seal_;
  std::optional<BlockCipher> cipher_;
  std::vector<std::byte> ahead_;  // read in advance
  size_t begin_ = 0, end_ = 0;
  uint64_t sequence_ = 0;
  bool has_header_ = false;
  DecodedHeader current_;
  std::array<std::byte, kFrameHeaderBytes> head_{};
  uint64_t wire_length_ = 0;  // of the payload, including tags
  uint64_t position_ = 0;     // bytes of it that have arrived
  uint64_t opened_ = 0;       // blocks decrypted
  uint32_t crc_ = 0;
  std::vector<iovec> parts_;
  std::array<std::array<std::byte, BlockCipher::kTagBytes>, 16> tags_{};
};

struct Connection::Impl {
  Link link;
  Sender sender;
  Receiver receiver;
  Impl(Link&& parts, const DirectionKey& sending, const DirectionKey& receiving);
};

// "rank 2 at 10.0.0.2:4711", "pid 17" for unix sockets.
std::string describe_peer(int fd, int rank);

// Used by both sides of the handshake.
std::unique_ptr<Connection> make_connection(Descriptor socket, const JobTicket& ticket,
                                            const Introduction& peer, const DirectionKey& sending,
                                            const DirectionKey& receiving);

}  // namespace yoke::net
