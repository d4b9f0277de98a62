// The one precompiled header: what every source that uses LibTorch includes anyway.
//
// Narrow on purpose: g++ instantiates the templates that a precompiled header leaves open once for every
// source file, so torch/torch.h in here would cost each of them 11 seconds instead of 4.
#pragma once

#include <fmt/core.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
