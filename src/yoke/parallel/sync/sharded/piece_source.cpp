#include "yoke/parallel/sync/sharded/piece_source.h"

#include <algorithm>

namespace yoke::parallel {

std::vector<Piece> pieces_of_rank(const std::vector<std::vector<int64_t>>& plan,
                                  const std::vector<int64_t>& elements, int rank, int ranks) {
  std::vector<Piece> pieces;
  for (size_t bucket = 0; bucket < plan.size(); ++bucket) {
    int64_t whole = 0;
    for (int64_t index : plan[bucket]) whole += elements[static_cast<size_t>(index)];
    int64_t part = std::max<int64_t>(1, (whole + ranks - 1) / ranks);
    int64_t first = part * rank, last = first + part, at = 0;
    for (int64_t index : plan[bucket]) {
      int64_t count = elements[static_cast<size_t>(index)];
      int64_t begin = std::max(first, at), end = std::min(last, at + count);
      if (begin < end)
        pieces.push_back({static_cast<size_t>(index), begin - at, end - at, bucket, begin - first});
      at += count;
    }
  }
  return pieces;
}

torch::Tensor run_of(const torch::Tensor& like, const torch::Tensor& whole) {
  torch::Tensor laid_out = torch::empty_strided(like.sizes(), like.strides(), whole.options());
  laid_out.copy_(whole);
  return laid_out.as_strided({like.numel()}, {1});
}

StatePiece piece_of(const PieceSource& source, size_t index, StatePiece::Kind kind, torch::Tensor values) {
  const Piece& at = source.pieces[index];
  const auto& [name, parameter] = source.parameters[at.parameter];
  StatePiece piece;
  piece.name = name;
  piece.values = std::move(values);
  piece.kind = kind;
  piece.shape = parameter.sizes().vec();
  piece.begin = at.begin;
  piece.end = at.end;
  piece.channels_last = parameter.dim() == 4 && !parameter.is_contiguous();
  return piece;
}

}  // namespace yoke::parallel
