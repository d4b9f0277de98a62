// Index conversion: nodes, boundaries, devices and stages are int, vectors are indexed by size_t.
#pragma once

#include <cstddef>

namespace yoke::plan {

inline size_t at(int index) {
  return static_cast<size_t>(index);
}

}  // namespace yoke::plan
