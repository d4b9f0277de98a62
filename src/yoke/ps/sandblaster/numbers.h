// The numbers of L-BFGS in a message.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "yoke/kernels/lbfgs.h"

namespace yoke::ps::sandblaster {

size_t bytes_of_numbers(int64_t history);
std::vector<std::byte> to_bytes(const kernels::LbfgsNumbers& numbers);
// Throws CommError if these are not such bytes; whether the numbers are valid is not checked.
kernels::LbfgsNumbers numbers_in(std::span<const std::byte> bytes);

}  // namespace yoke::ps::sandblaster
