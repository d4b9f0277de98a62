// The names that pieces of tensors have in the files of a checkpoint.
//
// "exp_avg/conv1.weight@shape=64x3x7x7@128:4096" holds elements 128..4095 of the state for conv1.weight, as
// they lie in memory; "…@channels_last" of one whose memory is in that order. "c_attn.weight@shape=768x2304
// @slice=1,0,1152" holds columns 0..1151, "…@slice=1,0,384,768,384" columns 0..383 and 768..1151 side by
// side. Both together: a run of a slice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::checkpoint {

// Consecutive indexes of a dimension.
struct PieceRange {
  int64_t offset = 0, extent = 0;
  bool operator==(const PieceRange&) const = default;
};

// Where a piece lies in its tensor: a slice along one dimension, then a run of the slice's elements in
// memory.
struct PieceAt {
  std::vector<int64_t> shape{};      // of the whole
  int64_t dim = -1;                  // sliced along it; -1: not sliced
  std::vector<PieceRange> ranges{};  // that the slice consists of, side by side
  int64_t begin = 0, end = 0;        // of the run; end 0: all of the slice
  bool channels_last = false;        // the memory order of the run

  bool is_whole() const { return dim < 0 && end == 0; }
};

std::string piece_name(const std::string& whole, const PieceAt& at);

struct NamedPiece {
  std::string whole;
  PieceAt at;
};
// Nullopt: a name like any other. The shape is empty where an older version left it out. What it returns is
// consistent: sizes do not overflow, slices and runs lie inside the shape where that is known.
std::optional<NamedPiece> parse_piece_name(const std::string& name);

}  // namespace yoke::checkpoint
