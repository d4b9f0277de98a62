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

// Room for about a hundred small frames; at most this much of a large payload is copied twice.
constexpr size_t kAheadBytes = 16 << 10;
// Payloads are checksummed or decrypted in pieces of this size, while they are in cache.
constexpr size_t kPieceBytes = 256 << 10;
constexpr uint64_t kBlock = BlockCipher::kBlockBytes;
constexpr uint64_t kUnit = BlockCipher::kBlockBytes + BlockCipher::kTagBytes;

// -1: nothing available.
ssize_t read_into(Link& link, iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  for (;;) {
    ssize_t got = ::recvmsg(link.socket.get(), &message, MSG_DONTWAIT);
    if (got > 0) return got;
    if (got == 0) link.fail("closed by the peer");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return -1;
    link.fail(errno == ECONNRESET ? "reset by the peer (it ended, or was killed)" : describe_errno(errno));
  }
}

}  // namespace

Receiver::Receiver(Link& link, const DirectionKey& key)
    : link_(link), header_seal_(link.protection, key), ahead_(kAheadBytes) {
  if (link.protection == Protection::kEncrypted) cipher_.emplace(key, BlockCipher::Way::kDecrypt);
}

bool Receiver::fill() {
  if (begin_ > 0) {
    std::memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  iovec rest{ahead_.data() + end_, ahead_.size() - end_};
  ssize_t got = read_into(link_, &rest, 1);
  if (got < 0) return false;
  end_ += static_cast<size_t>(got);
  return true;
}

const FrameHeader* Receiver::next_header() {
  link_.check();
  if (has_header_) return &current_.header;
  while (end_ - begin_ < kFrameHeaderBytes)
    if (!fill()) return nullptr;
  accept_header();
  return &current_.header;
}

// The order of the checks matters: nothing of a header is trusted before its MAC is verified, except magic,
// version, type and length, which decode() bounds.
void Receiver::accept_header() {
  std::memcpy(head_.data(), ahead_.data() + begin_, kFrameHeaderBytes);
  begin_ += kFrameHeaderBytes;
  if (fault::at(fault::Point::kFrameReceive) == fault::Effect::kCorrupt) head_.back() ^= std::byte{1};
  std::string why;
  std::optional<DecodedHeader> decoded = decode(head_, why);
  if (!decoded) link_.fail("rejected " + why);
  uint64_t mac = header_seal_.over(head_);
  if (!equal_in_constant_time(std::as_bytes(std::span(&mac, 1)), std::as_bytes(std::span(&decoded->mac, 1))))
    link_.fail("rejected a frame with a wrong MAC: it was modified in transit, or is not from this peer");
  if (decoded->job != link_.job) link_.fail("rejected a frame of another job");
  if (decoded->header.generation != link_.generation)
    link_.fail(fmt::format("rejected a frame of generation {}, this job is at {}", decoded->header.generation,
                           link_.generation));
  if (decoded->header.sequence != sequence_)
    link_.fail(fmt::format("rejected frame {}, expected {}: frames were replayed, reordered or lost",
                           decoded->header.sequence, sequence_));
  ++sequence_;
  current_ = *decoded;
  has_header_ = true;
  position_ = opened_ = 0;
  crc_ = 0;
  wire_length_ = cipher_ ? BlockCipher::wire_bytes(current_.header.length) : current_.header.length;
}

// Payload bytes go directly to the caller's memory; the tags between encrypted blocks go to tags_.
void Receiver::layout(std::span<std::byte> into, size_t limit) {
  parts_.clear();
  if (!cipher_) {
    parts_.push_back({into.data() + position_, std::min<uint64_t>(limit, wire_length_ - position_)});
    return;
  }
  for (uint64_t at = position_; at < wire_length_ && at - position_ < limit;) {
    uint64_t block = at / kUnit;
    uint64_t offset = at % kUnit;
    uint64_t bytes = std::min(kBlock, into.size() - block * kBlock);
    if (offset < bytes) {
      parts_.push_back({into.data() + block * kBlock + offset, bytes - offset});
      at += bytes - offset;
      offset = bytes;
    }
    auto& tag = tags_[block % tags_.size()];
    parts_.push_back({tag.data() + (offset - bytes), tag.size() - (offset - bytes)});
    at += parts_.back().iov_len;
  }
}

void Receiver::advance(std::span<std::byte> into, size_t bytes) {
  if (!cipher_) {
    if (link_.protection == Protection::kIntegrity)
      crc_ = kernels::crc32c(into.data() + position_, bytes, crc_);
    position_ += bytes;
    return;
  }
  position_ += bytes;
  while (opened_ * kBlock < into.size()) {
    uint64_t length = std::min(kBlock, into.size() - opened_ * kBlock);
    if (position_ < opened_ * kUnit + length + BlockCipher::kTagBytes) return;
    if (!cipher_->decrypt(into.subspan(opened_ * kBlock, length), head_,
                          tags_[opened_ % tags_.size()].data()))
      link_.fail("rejected a payload that does not decrypt: it was modified in transit");
    ++opened_;
  }
}

// Copies buffered bytes to parts_.
size_t Receiver::take_buffered() {
  size_t taken = 0;
  for (const iovec& one : parts_) {
    size_t bytes = std::min(one.iov_len, end_ - begin_);
    if (bytes == 0) break;
    std::memcpy(one.iov_base, ahead_.data() + begin_, bytes);
    begin_ += bytes;
    taken += bytes;
  }
  return taken;
}

// Reads into parts_; with the last part of a payload also what follows it, which saves a system call for the
// next header.
size_t Receiver::read_parts(bool last) {
  size_t wanted = 0;
  for (const iovec& one : parts_) wanted += one.iov_len;
  if (last) {
    begin_ = end_ = 0;
    parts_.push_back({ahead_.data(), ahead_.size()});
  }
  ssize_t got = read_into(link_, parts_.data(), parts_.size());
  if (got < 0) return 0;
  auto bytes = static_cast<size_t>(got);
  if (bytes > wanted) end_ = bytes - wanted;
  return std::min(bytes, wanted);
}

bool Receiver::receive(std::span<std::byte> into) {
  link_.check();
  YOKE_CHECK(has_header_ && into.size() == current_.header.length,
             "receive() of {} bytes without a header of that length", into.size());
  while (position_ < wire_length_) {
    layout(into, kPieceBytes);
    size_t bytes = begin_ < end_ ? take_buffered() : 0;
    if (bytes == 0) bytes = read_parts(wire_length_ - position_ <= kPieceBytes);
    if (bytes == 0) return false;
    advance(into, bytes);
  }
  return finish_frame();
}

bool Receiver::finish_frame() {
  if (link_.protection == Protection::kIntegrity && crc_ != current_.payload_crc)
    link_.fail("rejected a payload with a wrong checksum: it was corrupted in transit");
  has_header_ = false;
  return true;
}

}  // namespace yoke::net
