// What a rank's optimizer sees of a fully sharded module: its pieces of the trained parameters, with their
// gradients.
#pragma once

#include <memory>
#include <vector>

#include "yoke/parallel/placement/sharded/unit.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {

class OwnedPieces {
 public:
  OwnedPieces(const std::vector<std::unique_ptr<Unit>>& units, const std::vector<UnitPlan>& plans,
              const NamedTensors& parameters, comm::Communicator& comm);

  // Trained parameters, in the module's order; a piece's `bucket` is the number of its unit.
  const NamedTensors& parameters() const { return trained_.parameters; }
  const std::vector<Piece>& pieces() const { return trained_.pieces; }
  // Never empty: padding, where this rank owns nothing.
  const std::vector<optim::NamedTensor>& owned() const { return trained_.owned; }

  struct List {
    NamedTensors parameters;
    std::vector<Piece> pieces;
    std::vector<optim::NamedTensor> owned;  // what this rank has of them
  };
  // Of parameters that are not trained, which an optimizer does not see.
  const List& frozen() const { return frozen_; }

  // Adds this rank's part of a unit's averaged gradients to the pieces' gradients.
  void add_gradients(size_t unit, const torch::Tensor& part);
  // All of a unit's part; undefined before its first gradient.
  const torch::Tensor& gradient(size_t unit) const { return gradients_[unit]; }
  int64_t gradient_bytes() const;

 private:
  List trained_, frozen_;
  std::vector<std::vector<size_t>> of_unit_;  // indices of pieces
  std::vector<torch::Tensor> gradients_;      // of each unit's shard; the pieces' gradients are views of them
  std::vector<torch::TensorOptions> options_;
};

}  // namespace yoke::parallel
