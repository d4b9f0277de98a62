// Nodes, boundaries, devices and stages are numbered with int; vectors are not.
#pragma once

#include <cstddef>

namespace yoke::plan {

inline size_t at(int index) {
  return static_cast<size_t>(index);
}

}  // namespace yoke::plan
