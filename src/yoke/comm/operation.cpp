#include "yoke/comm/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace yoke::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "the words of a name begin with its first letter");

template <class Word>
uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// The last `bytes` % 8 characters of a text, zero-extended to a word, without reading past its end.
uint64_t last_word(const char* text, size_t bytes) {
  size_t left = bytes % 8;
  if (bytes >= 8) return load<uint64_t>(text + bytes - 8) >> (64 - 8 * left);
  if (left >= 4) return load<uint32_t>(text) | load<uint32_t>(text + left - 4) << (8 * (left - 4));
  return load<uint8_t>(text) | load<uint8_t>(text + left / 2) << (8 * (left / 2)) |
         load<uint8_t>(text + left - 1) << (8 * (left - 1));
}

// A pseudo-random constant for each word of a descriptor (the splitmix64 sequence).
constexpr uint64_t secret(uint64_t place) {
  uint64_t z = (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Both halves of the product of two words, each xored with the constant of its position: one multiplication
// mixes 16 bytes.
template <uint64_t kPair>
inline uint64_t mixed(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(a ^ secret(2 * kPair)) * (b ^ secret(2 * kPair + 1));
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

std::string op_text(uint8_t op) {
  if (op == kSendOp) return "send";
  if (op == kReceiveOp) return "receive";
  if (op > static_cast<uint8_t>(plan::Collective::kBarrier)) return fmt::format("unknown operation {}", op);
  return plan::to_string(static_cast<plan::Collective>(op));
}

std::string reduction_text(ReduceOp op) {
  if (op > ReduceOp::kProd) return fmt::format("unknown reduction {}", static_cast<int>(op));
  return to_string(op);
}

std::string type_text(DataType type) {
  if (type > DataType::kInt64) return fmt::format("unknown type {}", static_cast<int>(type));
  return to_string(type);
}

// The printable part: it may come from a peer and need not be terminated.
std::string name_text(const char (&name)[48]) {
  std::string text(name, ::strnlen(name, sizeof(name)));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return text;
}

bool reduces(uint8_t op) {
  return op <= static_cast<uint8_t>(plan::Collective::kReduceScatter);
}

bool has_root(uint8_t op) {
  using plan::Collective;
  for (Collective rooted :
       {Collective::kReduce, Collective::kBroadcast, Collective::kGather, Collective::kScatter}) {
    if (op == static_cast<uint8_t>(rooted)) return true;
  }
  return false;
}

}  // namespace

void Descriptor::set_name(std::string_view text) {
  // Whole words only: the descriptor is hashed right after it is written, and reading a word that was written
  // in pieces would stall on store forwarding.
  const size_t kept = std::min(text.size(), sizeof(name) - 1);
  std::memset(name, 0, sizeof(name));
  size_t at = 0;
  for (; at + 8 <= kept; at += 8) std::memcpy(name + at, text.data() + at, 8);
  if (at == kept) return;
  uint64_t last = last_word(text.data(), kept);
  std::memcpy(name + at, &last, 8);
}

void Descriptor::set_shape(std::span<const int64_t> sizes) {
  dims = static_cast<uint8_t>(std::min<size_t>(sizes.size(), 255));
  std::fill(std::begin(shape), std::end(shape), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < std::size(shape))
      shape[i] = sizes[i];
    else
      shape[std::size(shape) - 1] *= sizes[i];
  }
}

uint64_t Descriptor::fingerprint() const {
  // A send and its receive must have the same fingerprint.
  const uint64_t one = op == kReceiveOp ? kSendOp : op;
  // Field by field instead of from memory, for the same reason as in set_name().
  uint64_t first = one | static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(reduce) << 16 |
                   uint64_t{dims} << 24 | uint64_t{static_cast<uint32_t>(root)} << 32;
  auto letters = [&](size_t at) { return load<uint64_t>(name + at); };
  auto word = [](int64_t number_) { return static_cast<uint64_t>(number_); };
  uint64_t sum = mixed<0>(first, number);
  sum += mixed<1>(word(count), parts);
  sum += mixed<2>(word(shape[0]), word(shape[1]));
  sum += mixed<3>(word(shape[2]), word(shape[3]));
  sum += mixed<4>(letters(0), letters(8));
  sum += mixed<5>(letters(16), letters(24));
  sum += mixed<6>(letters(32), letters(40));
  return mixed<7>(sum, sum >> 32);
}

std::string Descriptor::text() const {
  std::string out = fmt::format("{} #{}", op_text(op), number);
  if (name[0] != '\0') out += fmt::format(" '{}'", name_text(name));
  if (op == static_cast<uint8_t>(plan::Collective::kBarrier)) return out;
  if (reduces(op)) out += fmt::format(" {}", reduction_text(reduce));
  out += fmt::format(" of {} ", type_text(type));
  if (dims == 0) {
    out += fmt::format("[{}]", count);
  } else {
    size_t shown = std::min<size_t>(dims, std::size(shape));
    out += fmt::format("[{}{}]", fmt::join(shape, shape + shown, ", "), dims > shown ? ", …" : "");
  }
  if (has_root(op)) out += fmt::format(", root {}", root);
  if (parts != 0) out += fmt::format(", parts {:04x}", parts & 0xffff);
  return out;
}

std::string Descriptor::short_text() const {
  return name[0] == '\0' ? op_text(op) : fmt::format("{} '{}'", op_text(op), name);
}

std::string describe_mismatch(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b) {
  if (rank_a > rank_b) return describe_mismatch(rank_b, b, rank_a, a);
  return fmt::format("the ranks called different operations: rank {} called {}, rank {} called {}", rank_a,
                     a.text(), rank_b, b.text());
}

}  // namespace yoke::comm
