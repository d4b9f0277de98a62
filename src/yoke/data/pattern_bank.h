// A recognisable picture per class, plus cheap noise: the source of synthetic images, vectors and videos.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/base/random.h"

namespace yoke::data {

// A picture is the sum of one coarse grid per decimal digit of the class, so that a thousand classes need
// thirty grids. Immutable and thread-safe.
class PatternBank {
 public:
  struct Size {
    int64_t channels, height, width;
    int64_t grid_height, grid_width;  // cells per channel; at most height and width
  };

  PatternBank(int64_t classes, Size size, uint64_t seed);

  // Writes channels x height x width floats: the picture of class `label` plus noise from `random`.
  void draw(int64_t label, Random& random, float* out) const;

 private:
  std::vector<float> sum_grids(int64_t label) const;
  void draw_row(const float* picture, Random& random, float* out) const;

  Size size_;
  int64_t digits_ = 1;
  std::vector<float> grids_;  // [digits, 10, channels, grid_height, grid_width]
  std::vector<float> noise_;
};

}  // namespace yoke::data
