// One thing that a Run saves: how its state is collected and restored.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "yoke/checkpoint/checkpoint.h"

namespace yoke::engine {

using NamedTensors = std::vector<checkpoint::NamedTensor>;

struct Tracked {
  std::string kind;  // "module": compared when a run resumes
  // Tensors that the ranks write in shares. nullptr: none.
  std::function<NamedTensors()> tensors{};
  bool in_model = false;  // stored in model.safetensors, not in optimizer.safetensors
  // A module's buffers; those of rank 0 are saved. nullptr: none.
  std::function<NamedTensors()> buffers{};
  std::function<nlohmann::json()> values{};  // nullptr: none
  // `saved`: all tensors saved under its name. Throws CheckpointError, or a json exception.
  std::function<void(const NamedTensors& saved, const nlohmann::json& values, const std::string& what)>
      restore{};
};

using TrackedList = std::map<std::string, Tracked>;

// What rank `rank` of `size` writes, and the values of all. rest["tracked"] lists names and kinds.
checkpoint::State collect(const TrackedList& all, int rank, int size);

// Throws CheckpointError if names or kinds differ from the saved ones.
void restore(const TrackedList& all, const checkpoint::State& saved, const std::string& where);

}  // namespace yoke::engine
