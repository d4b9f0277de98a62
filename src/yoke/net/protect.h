// Protection of one direction of a connection: MAC of headers, encryption of payloads.
#pragma once

#include <memory>

#include "yoke/net/connection.h"
#include "yoke/net/siphash.h"

struct evp_cipher_ctx_st;

namespace yoke::net {

// Key of one direction of one connection, derived by the handshake.
using DirectionKey = Digest;

// SipHash under the direction's key, or a plain checksum with Protection::kNone.
class HeaderSeal {
 public:
  HeaderSeal(Protection protection, const DirectionKey& key);
  uint64_t over(std::span<const std::byte, kFrameHeaderBytes> header) const;

 private:
  bool keyed_;
  SipKey key_;
};

// AES-128-GCM in blocks of kBlockBytes, each followed by its tag. The nonce counts the blocks of the
// direction, so that blocks cannot be omitted, repeated or reordered; the frame's header is authenticated
// with each.
class BlockCipher {
 public:
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr size_t kTagBytes = 16;

  enum class Way { kEncrypt, kDecrypt };
  BlockCipher(const DirectionKey& key, Way way);

  void encrypt(std::byte* to, Bytes plain, Bytes header, std::byte* tag);
  // In place. False: it was modified in transit.
  bool decrypt(std::span<std::byte> block, Bytes header, const std::byte* tag);

  // Size of a payload on the wire.
  static uint64_t wire_bytes(uint64_t payload) {
    return payload + (payload + kBlockBytes - 1) / kBlockBytes * kTagBytes;
  }

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  void start(Bytes header);
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Way way_;
  uint64_t blocks_ = 0;
};

}  // namespace yoke::net
