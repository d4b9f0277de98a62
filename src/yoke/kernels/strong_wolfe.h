// A line search: the step length along a direction at which the loss has decreased enough and its slope is
// small enough (Nocedal & Wright, algorithms 3.5 and 3.6, with cubic interpolation; the choices of minFunc).
#pragma once

#include <cstdint>

#include "yoke/kernels/lbfgs.h"

namespace yoke::kernels {

struct LineSearchStart {
  double t = 1;      // first step length to try
  double value = 0;  // the loss at 0
  double slope = 0;  // of the loss along the direction, at 0; negative
};

struct LineSearchResult {
  double t = 0;
  double value = 0;
  int64_t evaluations = 0;
};

// Searches along kDirection from the parameters, where kPrevious is the gradient. Moves the parameters to the
// result, whose gradient becomes kGradient.
LineSearchResult strong_wolfe(LbfgsVectors& vectors, int64_t history, const LineSearchStart& start);

// Minimum of the cubic through two points with these slopes, limited to [low, high].
struct CubicPoint {
  double t, value, slope;
};
double cubic_minimum(const CubicPoint& a, const CubicPoint& b, double low, double high);

}  // namespace yoke::kernels
