// into[i] += scale * from[i], of values whose type is known at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "yoke/base/data_type.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/kernels/reduce.h"

namespace yoke::ps {

// `type`: fp32 or fp64.
inline void add_scaled(DataType type, std::byte* into, const std::byte* from, double scale, int64_t count) {
  if (scale == 1) return kernels::accumulate(into, from, static_cast<size_t>(count), type, ReduceOp::kSum);
  if (type == DataType::kFloat32)
    kernels::add_scaled(reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from), scale, count);
  else
    kernels::add_scaled(reinterpret_cast<double*>(into), reinterpret_cast<const double*>(from), scale, count);
}

}  // namespace yoke::ps
