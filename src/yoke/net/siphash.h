// SipHash-2-4 (Aumasson and Bernstein, 2012): a 64-bit MAC for short inputs. OpenSSL's version costs ten
// times as much per header; the test compares both.
#pragma once

#include <cstdint>

#include "yoke/net/secret.h"

namespace yoke::net {

struct SipKey {
  uint64_t low = 0;
  uint64_t high = 0;
};

SipKey sip_key(std::span<const std::byte, 16> bytes);
uint64_t siphash(const SipKey& key, Bytes data);

}  // namespace yoke::net
