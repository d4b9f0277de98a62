// Reductions of arrays, the inner loop of every collective.
//
// The fastest instruction set of the CPU is selected at the first call (AVX-512, AVX2, NEON, plain). fp16 and
// bf16 are combined in fp32 and rounded once (to nearest even). Sums are taken in the order of the sources,
// so that the result does not depend on timing. NaN propagates through max and min.
#pragma once

#include <cstddef>
#include <span>

#include "yoke/base/data_type.h"

namespace yoke::kernels {

// into[i] = into[i] op from[i]. kMean adds: divide at the end with divide().
void accumulate(void* into, const void* from, size_t count, DataType type, ReduceOp op);

// outs[k][i] = op over sources, in order; kMean divides by the number of sources. One pass: each source is
// read once, each out written once. An out may be identical to a source but must not overlap otherwise.
// Requires: at least one source and one out, at most 64 of each.
void reduce(std::span<void* const> outs, std::span<const void* const> sources, size_t count, DataType type,
            ReduceOp op);

// data[i] = data[i] / divisor, rounded once (integers: towards zero).
void divide(void* data, size_t count, DataType type, int64_t divisor);

namespace reference {
// The same, one element at a time: the reference in tests.
void reduce(std::span<void* const> outs, std::span<const void* const> sources, size_t count, DataType type,
            ReduceOp op);
}  // namespace reference

}  // namespace yoke::kernels
