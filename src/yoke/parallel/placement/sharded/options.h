// How a module is fully sharded.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke {

struct FullyShardOptions {
  // Modules whose parameters are gathered together, by name: "encoder", "h.0"; `*` stands for one part of a
  // name ("h.*"). What no name covers is one more unit. Empty: every direct child, and every element of a
  // ModuleList or Sequential, is a unit.
  std::vector<std::string> units;
  // Units that are gathered ahead of the one in use, as the step before has used them.
  int64_t prefetch = 1;
  // false: a unit stays from its forward to its backward. One gather a step less, all parameters in memory.
  bool reshard_after_forward = true;
  // Where shards live. "optimizer": the optimizer's copy of a shard and its state in host memory; "all":
  // nothing of a shard stays on the GPU. Only for modules on a GPU.
  std::string offload = "none";
  // Matrices and kernels are gathered as copies of this type, and their gradients are reduced in it; vectors
  // (biases, weights of norms) keep their own, which kernels of norms want. For forward under autocast.
  std::optional<c10::ScalarType> gather_type;
  // Gradients are cast to this type before they are reduced. Nothing: they keep their own.
  std::optional<c10::ScalarType> reduce_type;
  // false: gradients are summed over the ranks.
  bool average = true;
  // Ranks that share memory hold the parameters once between them, and gather nothing.
  bool share = true;
};

}  // namespace yoke
