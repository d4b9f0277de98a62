#include "yoke/engine/shard_block.h"

#include "yoke/base/error.h"
#include "yoke/checkpoint/pieces.h"

namespace yoke::engine {
namespace {

using parallel::StatePiece;

constexpr int64_t kAlignment = 16;

ShardPart part_of(const StatePiece& piece) {
  ShardPart part;
  part.name = piece.name;
  part.optimizer = piece.kind == StatePiece::Kind::kOptimizer;
  part.type = piece.values.scalar_type();
  part.shape = piece.shape;
  part.places = piece.places;
  part.channels_last = piece.channels_last;
  part.begin = piece.begin;
  part.end = piece.end;
  if (piece.is_list() || piece.is_whole()) part.end = piece.values.numel();
  if (piece.is_whole() && !piece.is_list())
    part.channels_last = piece.values.dim() == 4 && !piece.values.is_contiguous();
  return part;
}

// In the order of memory.
torch::Tensor run_of(const StatePiece& piece, const ShardPart& part) {
  if (piece.is_list() || !piece.is_whole()) return piece.values;
  checkpoint::PieceAt at{piece.shape, -1, {}, 0, part.end, part.channels_last};
  return checkpoint::cut(piece.values, at);
}

}  // namespace

int64_t ShardPart::bytes() const {
  return (end - begin) * static_cast<int64_t>(c10::elementSize(type));
}

ShardOutline outline_of(const std::vector<StatePiece>& shard) {
  ShardOutline outline;
  for (const StatePiece& piece : shard) {
    YOKE_CHECK(piece.dim < 0, "'{}' is a slice", piece.name);
    ShardPart part = part_of(piece);
    part.offset = outline.bytes;
    outline.bytes += (part.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    outline.parts.push_back(std::move(part));
  }
  return outline;
}

nlohmann::json to_json(const ShardOutline& outline) {
  nlohmann::json parts = nlohmann::json::array();
  for (const ShardPart& part : outline.parts)
    parts.push_back({{"name", part.name},
                     {"optimizer", part.optimizer},
                     {"type", static_cast<int>(part.type)},
                     {"shape", part.shape},
                     {"channels_last", part.channels_last},
                     {"begin", part.begin},
                     {"end", part.end},
                     {"places", part.places},
                     {"offset", part.offset}});
  return {{"bytes", outline.bytes}, {"parts", parts}};
}

ShardOutline parse_outline(const nlohmann::json& text) {
  ShardOutline outline;
  outline.bytes = text.at("bytes");
  for (const nlohmann::json& one : text.at("parts")) {
    ShardPart part;
    part.name = one.at("name");
    part.optimizer = one.at("optimizer");
    part.type = static_cast<torch::ScalarType>(one.at("type").get<int>());
    part.shape = one.at("shape").get<std::vector<int64_t>>();
    part.channels_last = one.at("channels_last");
    part.begin = one.at("begin");
    part.end = one.at("end");
    part.places = one.at("places").get<std::vector<int64_t>>();
    part.offset = one.at("offset");
    if (part.begin < 0 || part.end < part.begin || part.offset < 0 ||
        part.bytes() > outline.bytes - part.offset)
      throw CommError("a shard of {} bytes has '{}' at bytes {} to {}. Are all ranks the same build?",
                      outline.bytes, part.name, part.offset, part.offset + part.bytes());
    outline.parts.push_back(std::move(part));
  }
  return outline;
}

torch::Tensor make_block(int64_t bytes) {
  return torch::empty({bytes}, torch::kUInt8);
}

torch::Tensor values_of(const torch::Tensor& block, const ShardPart& part) {
  return block.narrow(0, part.offset, part.bytes()).view(part.type);
}

void pack(const std::vector<StatePiece>& shard, const ShardOutline& outline, size_t first, size_t last,
          const torch::Tensor& block) {
  torch::NoGradGuard no_grad;
  const int64_t start = first < last ? outline.parts[first].offset : 0;
  for (size_t i = first; i < last; ++i) {
    ShardPart part = outline.parts[i];
    part.offset -= start;
    values_of(block, part).copy_(run_of(shard[i], part).reshape({-1}));
  }
}

std::vector<std::pair<size_t, size_t>> messages_of(const ShardOutline& outline, int64_t bytes) {
  std::vector<std::pair<size_t, size_t>> messages;
  for (size_t i = 0; i < outline.parts.size(); ++i) {
    const ShardPart& part = outline.parts[i];
    const bool fits = !messages.empty() &&
                      part.offset + part.bytes() - outline.parts[messages.back().first].offset <= bytes;
    if (fits)
      messages.back().second = i + 1;
    else
      messages.emplace_back(i, i + 1);
  }
  return messages;
}

}  // namespace yoke::engine
