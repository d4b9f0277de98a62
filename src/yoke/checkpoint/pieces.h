// Tensors of a checkpoint that lie in several files, some of them in pieces.
//
// "exp_avg/conv1.weight@128:4096" holds elements 128..4095 of the state for conv1.weight, as they lie in
// memory; "…@128:4096@channels_last" of one whose memory is in that order.
#pragma once

#include <string>
#include <vector>

#include "yoke/checkpoint/format/manifest.h"
#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

std::string piece_name(const std::string& whole, int64_t begin, int64_t end, bool channels_last);

// Of all files of the kind ("model", "optimizer"), mapped and read-only. Throws ConfigError.
std::vector<NamedTensor> load_files(const std::filesystem::path& checkpoint, const format::Manifest& manifest,
                                    const std::string& kind);

// Pieces put together, each to the shape of the model's tensor that its name ends with; whole tensors as they
// are. Throws ConfigError where a piece is missing, overlaps another or belongs to nothing. `what`: for
// errors.
std::vector<NamedTensor> join_pieces(std::vector<NamedTensor> tensors, const std::vector<NamedTensor>& model,
                                     const std::string& what);

}  // namespace yoke::checkpoint
