// Loads published weights into a model (`--init FILE`, `yoke ckpt import`), by name.
//
// More tolerant than restoring a checkpoint, as the formats of torchvision and Hugging Face require: the
// prefix "transformer.", causal masks saved like weights, a tied output layer, missing batch counters,
// another floating-point type.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

// The tensors of a .safetensors file, a sharded model (its index.json), or a folder: one that contains
// either, a checkpoint, or a run (its newest good checkpoint). Memory-mapped, read-only. Throws ConfigError
// for unreadable files, CheckpointError for a run without a good checkpoint.
std::vector<NamedTensor> load_weights(const std::filesystem::path& path);

struct CopiedWeights {
  int64_t copied = 0;
  std::vector<std::string> ignored;  // of the source: known non-parameters
  // Of the destination: batch counters and a tied output layer that the source does not have.
  std::vector<std::string> kept;
};

// Copies each tensor of `source` into the one of the same name in `own` (a module's parameters and buffers).
// `what` is the source, for errors. If anything is missing, surplus or of another shape nothing is copied:
// throws CheckpointError that names the first, counts the others, and names the configuration key to check.
CopiedWeights copy_weights(const std::vector<NamedTensor>& source, const std::vector<NamedTensor>& own,
                           const std::string& what);

}  // namespace yoke::checkpoint
