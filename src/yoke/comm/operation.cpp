#include "yoke/comm/operation.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace yoke::comm {
namespace {

std::string op_text(uint8_t op) {
  if (op == kSendOp) return "send";
  if (op == kReceiveOp) return "receive";
  return plan::to_string(static_cast<plan::Collective>(op));
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
  size_t kept = std::min(text.size(), sizeof(name) - 1);
  std::copy_n(text.data(), kept, name);
  std::fill(name + kept, name + sizeof(name), '\0');
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
  // A send and its receive are one thing seen from two sides.
  Descriptor common = *this;
  if (common.op == kReceiveOp) common.op = kSendOp;
  return XXH3_64bits(&common, sizeof(common));
}

std::string Descriptor::text() const {
  std::string out = fmt::format("{} #{}", op_text(op), number);
  if (name[0] != '\0') out += fmt::format(" '{}'", name);
  if (op == static_cast<uint8_t>(plan::Collective::kBarrier)) return out;
  if (reduces(op)) out += fmt::format(" {}", to_string(reduce));
  out += fmt::format(" of {} ", to_string(type));
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

std::string describe_mismatch(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b) {
  if (rank_a > rank_b) return describe_mismatch(rank_b, b, rank_a, a);
  return fmt::format("the ranks ask for different things: rank {} called {}, rank {} called {}", rank_a,
                     a.text(), rank_b, b.text());
}

}  // namespace yoke::comm
