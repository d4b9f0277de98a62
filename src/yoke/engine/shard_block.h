// A rank's shard of a run's state as one block of bytes and an outline that says what lies where: what a
// neighbour keeps, and what survives the worker it was copied from.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "yoke/parallel/state.h"

namespace yoke::engine {

// A run of elements of one tensor as they lie in memory, or a list with numbers of some parameters.
struct ShardPart {
  std::string name;        // as on one device
  bool optimizer = false;  // of its state; otherwise a parameter
  torch::ScalarType type = torch::kFloat32;
  std::vector<int64_t> shape{};  // of the whole tensor
  bool channels_last = false;
  int64_t begin = 0, end = 0;     // elements; of a list: 0 and their number
  std::vector<int64_t> places{};  // of a list: positions in the whole one
  int64_t offset = 0;             // in the block

  int64_t bytes() const;
  std::string key() const { return (optimizer ? "o:" : "m:") + name; }
};

struct ShardOutline {
  std::vector<ShardPart> parts{};  // in the order of the pieces
  int64_t bytes = 0;               // of the block
};

// Requires pieces that are whole or runs: those of data parallel ranks.
ShardOutline outline_of(const std::vector<parallel::StatePiece>& shard);

nlohmann::json to_json(const ShardOutline& outline);
// Of another rank. Throws a json exception for a missing field, CommError for a part outside of the block.
ShardOutline parse_outline(const nlohmann::json& text);

// Host memory for `bytes`.
torch::Tensor make_block(int64_t bytes);
// The numbers of a part: a view of the block.
torch::Tensor values_of(const torch::Tensor& block, const ShardPart& part);

// Copies pieces first .. last - 1 into `block`, whose first byte is that of part `first`.
void pack(const std::vector<parallel::StatePiece>& shard, const ShardOutline& outline, size_t first,
          size_t last, const torch::Tensor& block);

// Parts that travel in one message: consecutive, of about `bytes`. Each is [first, last).
std::vector<std::pair<size_t, size_t>> messages_of(const ShardOutline& outline, int64_t bytes);

}  // namespace yoke::engine
