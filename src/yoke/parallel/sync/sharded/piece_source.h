// Pieces of parameters that one rank owns, whoever cut them: what state needs to know of a layout.
//
// A piece is a run of elements of one parameter as they lie in memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/give_values.h"

namespace yoke::parallel {

struct Piece {
  size_t parameter = 0;
  int64_t begin = 0, end = 0;  // elements of the parameter
  size_t bucket = 0;
  int64_t offset = 0;  // in the rank's part of the bucket
};

// What rank `rank` of `ranks` owns. `elements`: of each parameter. Every bucket is padded to a multiple of
// `ranks` and cut into equal parts.
std::vector<Piece> pieces_of_rank(const std::vector<std::vector<int64_t>>& plan,
                                  const std::vector<int64_t>& elements, int rank, int ranks);

struct PieceSource {
  const NamedTensors& parameters;
  const std::vector<Piece>& pieces;
  const std::vector<optim::NamedTensor>& owned;  // owned[i] is pieces[i]; padding may stand behind them
  comm::Communicator& comm;
};

// Piece number `index` of a tensor like its parameter, with these values.
StatePiece piece_of(const PieceSource& source, size_t index, StatePiece::Kind kind, torch::Tensor values);

// A whole tensor as one run of elements, in the layout of the parameter `like`.
torch::Tensor run_of(const torch::Tensor& like, const torch::Tensor& whole);

}  // namespace yoke::parallel
