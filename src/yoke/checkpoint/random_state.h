// The global random generators as text, so that a resumed run draws what the undisturbed one would have
// drawn.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>

namespace yoke::checkpoint {

// {"cpu": hexadecimal digits} and, where `device` is a CUDA device, "cuda" for its generator.
nlohmann::json random_state(torch::Device device);

// Throws CheckpointError where `state` is not what random_state() made. A generator that the state does not
// have (the run moved to a GPU) stays as it is, with a warning.
void set_random_state(const nlohmann::json& state, torch::Device device);

}  // namespace yoke::checkpoint
