// Published weights into a model (`--init FILE`, `yoke ckpt import`), by name.
//
// Looser than restoring a checkpoint, where the formats of torchvision and Hugging Face call for it: the
// prefix "transformer.", causal masks saved as if they were weights, a tied output layer, absent batch
// counters, another floating-point type.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

// The tensors of a .safetensors file, of a sharded model (its index.json), or of a folder: one that holds
// either, a checkpoint, or a run (its newest good checkpoint). Mapped, read-only. Throws ConfigError for
// files that cannot be read, CheckpointError for a run without a good checkpoint.
std::vector<NamedTensor> load_weights(const std::filesystem::path& path);

struct CopiedWeights {
  int64_t copied = 0;
  std::vector<std::string> ignored;  // of the source: known non-parameters
  std::vector<std::string>
      kept;  // of the destination: batch counters and a tied output layer that the source does not have
};

// Copies each tensor of `source` into the one of the same name in `own` (a module's parameters and buffers).
// `what` is the source, for errors. Nothing is copied where anything is missing, surplus or of another shape:
// throws CheckpointError that names the first, counts the others, and names the key of the configuration to
// look at.
CopiedWeights copy_weights(const std::vector<NamedTensor>& source, const std::vector<NamedTensor>& own,
                           const std::string& what);

}  // namespace yoke::checkpoint
