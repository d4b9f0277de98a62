// Lies about a gradient, for the fault point collab.gradient and for tests.
//
//   flip     reversed
//   scale    100 times as large
//   noise    random numbers, 30 times as large
//   drift    one constant is added, 10 times as large as its elements
//   corrupt  reversed and 100 times as large
#pragma once

#include <cstdint>
#include <span>

#include "yoke/base/fault.h"

namespace yoke::collab {

// Any other effect changes nothing. `seed`: of the noise.
void falsify(fault::Effect effect, uint64_t seed, std::span<float> gradient);

}  // namespace yoke::collab
