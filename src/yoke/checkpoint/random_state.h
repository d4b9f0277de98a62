// The global random generators as text, so that a resumed run draws the same numbers as an uninterrupted one.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>

namespace yoke::checkpoint {

// {"cpu": hexadecimal digits}, and "cuda" for the generator of `device` if it is a CUDA device.
nlohmann::json random_state(torch::Device device);

// Throws CheckpointError if `state` is not from random_state(). A generator missing from the state (the run
// moved to a GPU) is not changed, with a warning.
void set_random_state(const nlohmann::json& state, torch::Device device);

}  // namespace yoke::checkpoint
