// Tensors in pieces with global coordinates (format/piece_name.h): cut out, put back, put together.
#pragma once

#include <string>
#include <vector>

#include "yoke/checkpoint/format/manifest.h"
#include "yoke/checkpoint/format/piece_name.h"
#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

// The piece of `whole`, which has the shape: a view, or a copy where its memory is not in one place.
torch::Tensor cut(const torch::Tensor& whole, const PieceAt& at);
// The reverse: writes the values to their place.
void put(const torch::Tensor& whole, const PieceAt& at, const torch::Tensor& values);

// Of all files of the kind ("model", "optimizer"), mapped and read-only. Throws ConfigError.
std::vector<NamedTensor> load_files(const std::filesystem::path& checkpoint, const format::Manifest& manifest,
                                    const std::string& kind);

// Pieces put together; whole tensors as they are. Without a shape of their own they have that of the model's
// tensor that their name ends with. Throws ConfigError where a piece is missing, overlaps another or belongs
// to nothing. `what`: for errors.
std::vector<NamedTensor> join_pieces(std::vector<NamedTensor> tensors, const std::vector<NamedTensor>& model,
                                     const std::string& what);

}  // namespace yoke::checkpoint
