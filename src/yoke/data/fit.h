// Checks that data and model fit together.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "yoke/base/sample_spec.h"
#include "yoke/data/options.h"

namespace yoke::data {

// Number of samples of a data set of `size` under data.limit.
int64_t limited(int64_t size, const DataOptions& options);

// Throws ConfigError: the data does not match the model. Names both and the keys to change.
[[noreturn]] void throw_mismatch(const DataOptions& options, const SampleSpec& have,
                                 const SampleSpec& wanted);
// The same for data of another kind.
[[noreturn]] void throw_other_kind(const DataOptions& options, std::string_view have,
                                   const SampleSpec& wanted);

// Tokens per sample: data.seq_len, or what the model takes. Throws ConfigError if the model takes fewer.
int64_t sequence_length(const DataOptions& options, const SampleSpec& wanted);

// YOKE_CHECK that all indices are in 0..size-1.
void check_indices(std::span<const int64_t> indices, int64_t size);

}  // namespace yoke::data
