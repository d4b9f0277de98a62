#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/kernels/crc32c.h"
#include "yoke/net/connection_impl.h"

namespace yoke::net {
namespace {

// Maximum per system call.
constexpr size_t kBatchBytes = 512 << 10;
// The same for checksummed payloads: they must still be in the L2 cache, beside the memory they are copied
// to, when the kernel copies them.
constexpr size_t kSummedBytes = 256 << 10;
constexpr size_t kBatchParts = 128;
constexpr size_t kStagedBytes =
    kBatchBytes + kFrameHeaderBytes + BlockCipher::kBlockBytes + BlockCipher::kTagBytes;

Bytes rest_of(Bytes bytes, size_t sent) {
  return sent >= bytes.size() ? Bytes() : bytes.subspan(sent);
}

iovec part(Bytes bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

Sender::Sender(Link& link, const DirectionKey& key) : link_(link), header_seal_(link.protection, key) {
  if (link.protection == Protection::kEncrypted) cipher_.emplace(key, BlockCipher::Way::kEncrypt);
}

void Sender::post(const FrameHeader& header, Bytes payload, bool copy) {
  YOKE_CHECK(payload.size() <= max_payload(header.type), "a frame of type {} with {} bytes",
             static_cast<int>(header.type), payload.size());
  Outgoing& frame = queue_.emplace_back();
  frame.header = header;
  frame.header.generation = link_.generation;
  frame.header.length = payload.size();
  frame.payload = payload;
  if (!copy || payload.empty()) return;
  if (payload.size() <= frame.small.size()) {
    std::memcpy(frame.small.data(), payload.data(), payload.size());
    frame.payload = Bytes(frame.small.data(), payload.size());
  } else {
    frame.large.assign(payload.begin(), payload.end());
    frame.payload = frame.large;
  }
}

// As late as possible, just before the frame is sent: sequence numbers follow the order on the wire, and the
// checksum leaves the payload in cache for the copy into the kernel.
void Sender::seal(Outgoing& frame) {
  const fault::Effect fault = fault::at(fault::Point::kFrameSend);
  if (fault == fault::Effect::kDrop) ++sequence_;  // the peer sees a missing frame
  frame.header.sequence = sequence_++;
  // The tags of an encrypted payload replace the checksum.
  uint32_t crc = link_.protection == Protection::kIntegrity
                     ? kernels::crc32c(frame.payload.data(), frame.payload.size())
                     : 0;
  frame.head = encode(frame.header, link_.job, crc, 0);
  set_mac(frame.head, header_seal_.over(frame.head));
  if (fault == fault::Effect::kCorrupt) frame.head.back() ^= std::byte{1};
  frame.sealed = true;
}

size_t Sender::send(iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  for (;;) {
    ssize_t sent = ::sendmsg(link_.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      wire_bytes += static_cast<uint64_t>(sent);
      return static_cast<size_t>(sent);
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    link_.fail(errno == EPIPE || errno == ECONNRESET ? "closed by the peer while sending"
                                                     : describe_errno(errno));
  }
}

bool Sender::flush() {
  link_.check();
  return cipher_ ? flush_encrypted() : flush_plain();
}

size_t Sender::collect(std::vector<iovec>& parts) {
  parts.clear();
  const size_t most = link_.protection == Protection::kIntegrity ? kSummedBytes : kBatchBytes;
  size_t bytes = 0;
  for (Outgoing& frame : queue_) {
    if (bytes >= most || parts.size() + 2 > kBatchParts) break;
    if (!frame.sealed) seal(frame);
    for (Bytes piece :
         {rest_of(frame.head, frame.sent),
          rest_of(frame.payload, frame.sent > frame.head.size() ? frame.sent - frame.head.size() : 0)}) {
      if (piece.empty()) continue;
      parts.push_back(part(piece));
      bytes += piece.size();
    }
  }
  return bytes;
}

void Sender::account(size_t bytes) {
  while (bytes > 0) {
    Outgoing& frame = queue_.front();
    size_t take = std::min(bytes, frame.head.size() + frame.payload.size() - frame.sent);
    frame.sent += take;
    bytes -= take;
    if (frame.sent < frame.head.size() + frame.payload.size()) return;
    payload_bytes += frame.payload.size();
    queue_.pop_front();
  }
}

bool Sender::flush_plain() {
  while (!queue_.empty()) {
    size_t wanted = collect(parts_);
    size_t sent = send(parts_.data(), parts_.size());
    account(sent);
    if (sent < wanted) return false;
  }
  return true;
}

// Encrypts the next blocks into the staging buffer. They must not be encrypted twice: the nonce advances per
// block.
void Sender::stage() {
  if (!staged_) staged_ = std::make_unique_for_overwrite<std::byte[]>(kStagedBytes);
  staged_begin_ = staged_end_ = 0;
  while (!queue_.empty() && staged_end_ < kBatchBytes) {
    Outgoing& frame = queue_.front();
    if (!frame.sealed) {
      seal(frame);
      std::memcpy(staged_.get() + staged_end_, frame.head.data(), frame.head.size());
      staged_end_ += frame.head.size();
    }
    while (frame.sent < frame.payload.size() && staged_end_ < kBatchBytes) {
      Bytes block = frame.payload.subspan(
          frame.sent, std::min(BlockCipher::kBlockBytes, frame.payload.size() - frame.sent));
      std::byte* at = staged_.get() + staged_end_;
      cipher_->encrypt(at, block, frame.head, at + block.size());
      staged_end_ += block.size() + BlockCipher::kTagBytes;
      frame.sent += block.size();
    }
    if (frame.sent < frame.payload.size()) return;
    payload_bytes += frame.payload.size();
    queue_.pop_front();
  }
}

bool Sender::flush_encrypted() {
  for (;;) {
    if (staged_begin_ == staged_end_) {
      if (queue_.empty()) return true;
      stage();
    }
    iovec whole = part({staged_.get() + staged_begin_, staged_end_ - staged_begin_});
    size_t sent = send(&whole, 1);
    staged_begin_ += sent;
    if (staged_begin_ < staged_end_) return false;
  }
}

}  // namespace yoke::net
