#include "yoke/net/siphash.h"

#include <bit>
#include <cstring>

#include "yoke/net/wire.h"

namespace yoke::net {
namespace {

struct State {
  uint64_t a, b, c, d;

  void round() {
    a += b;
    c += d;
    b = std::rotl(b, 13) ^ a;
    d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b;
    a += d;
    b = std::rotl(b, 17) ^ c;
    d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }

  void take(uint64_t word) {
    d ^= word;
    round();
    round();
    a ^= word;
  }
};

}  // namespace

SipKey sip_key(std::span<const std::byte, 16> bytes) {
  return {wire::get<uint64_t>(bytes.data()), wire::get<uint64_t>(bytes.data() + 8)};
}

uint64_t siphash(const SipKey& key, Bytes data) {
  State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
              key.high ^ 0x7465646279746573};
  size_t whole = data.size() & ~size_t{7};
  for (size_t at = 0; at < whole; at += 8) state.take(wire::get<uint64_t>(data.data() + at));
  uint64_t last = static_cast<uint64_t>(data.size()) << 56;
  if (size_t rest = data.size() - whole; rest > 0) {
    uint64_t tail = 0;
    std::memcpy(&tail, data.data() + whole, rest);
    last |= tail;
  }
  state.take(last);
  state.c ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace yoke::net
