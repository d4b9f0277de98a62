// The state of a run as pieces with global coordinates: what a checkpoint consists of, whatever the layout.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "yoke/checkpoint/pieces.h"

namespace yoke::parallel {

// A tensor of the state, or the part of one that a rank holds. Coordinates refer to the whole tensor as on
// one device.
struct StatePiece : checkpoint::PieceAt {
  enum class Kind { kParameter, kBuffer, kOptimizer };

  std::string name;  // as on one device: "conv1.weight", "exp_avg/conv1.weight"
  torch::Tensor values;
  Kind kind = Kind::kParameter;
  // For a list with one number per parameter of the model: positions of these in the whole list.
  std::vector<int64_t> places{};
  // Number of ranks that hold this very piece, and the index of this one; -1: a copy that others save.
  int holder = 0, holders = 1;

  bool is_list() const { return !places.empty(); }
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Whole tensors of a rank that holds the complete model: parameters, buffers, and optimizer state (entries
// without a '/' have one number per parameter).
std::vector<StatePiece> whole_state(const NamedTensors& parameters, const NamedTensors& buffers,
                                    const NamedTensors& optimizer, int holder = 0, int holders = 1);

// Gradients of these parameters, whole; missing ones are undefined.
std::vector<StatePiece> whole_gradients(const NamedTensors& parameters, int holder = 0, int holders = 1);

}  // namespace yoke::parallel
