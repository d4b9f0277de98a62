// Whether data and model fit together, with the errors when they do not.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "yoke/base/sample_spec.h"
#include "yoke/data/options.h"

namespace yoke::data {

// Samples of a data set of `size` that data.limit leaves.
int64_t limited(int64_t size, const DataOptions& options);

// The data are not what the model takes. Names both and the keys that would help.
[[noreturn]] void throw_mismatch(const DataOptions& options, const SampleSpec& have,
                                 const SampleSpec& wanted);
// The same for data of another kind altogether.
[[noreturn]] void throw_other_kind(const DataOptions& options, std::string_view have,
                                   const SampleSpec& wanted);

// Tokens of one sample: data.seq_len, or what the model takes. Throws ConfigError where the model takes
// fewer.
int64_t sequence_length(const DataOptions& options, const SampleSpec& wanted);

// Our own mistake where an index is outside 0..size-1.
void check_indices(std::span<const int64_t> indices, int64_t size);

}  // namespace yoke::data
