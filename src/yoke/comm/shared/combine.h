// One piece of work of a collective: a copy from one source, or a reduction of several.
#pragma once

#include <cstring>
#include <span>

#include "yoke/kernels/reduce.h"

namespace yoke::comm::shared {

inline void combine(std::span<void* const> outs, std::span<const void* const> sources, size_t count,
                    DataType type, ReduceOp op) {
  if (sources.size() > 1) return kernels::reduce(outs, sources, count, type, op);
  for (void* out : outs) {
    if (out != sources[0]) std::memcpy(out, sources[0], count * size_of(type));
  }
}

}  // namespace yoke::comm::shared
