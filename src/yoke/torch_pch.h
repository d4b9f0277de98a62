// The one precompiled header: what every source that uses LibTorch includes anyway.
#pragma once

#include <fmt/core.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
