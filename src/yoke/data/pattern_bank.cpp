#include "yoke/data/pattern_bank.h"

#include <algorithm>

namespace yoke::data {
namespace {

constexpr int64_t kBase = 10;
constexpr float kNoise = 0.5f;
// Normal random numbers cost 20 ns each; a run of this pool from a random position looks as good to a model
// and costs a copy.
constexpr int64_t kPool = 1 << 16;
constexpr int64_t kRun = 1024;

std::vector<float> normals(int64_t count, double scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(scale * random.normal());
  return values;
}

}  // namespace

PatternBank::PatternBank(int64_t classes, Size size, uint64_t seed) : size_(size) {
  for (int64_t reach = kBase; reach < classes; reach *= kBase) ++digits_;
  const int64_t grid = size.channels * size.grid_height * size.grid_width;
  grids_ = normals(digits_ * kBase * grid, 1.0, derive_seed(seed, 1));
  noise_ = normals(kPool, kNoise, derive_seed(seed, 2));
}

std::vector<float> PatternBank::sum_grids(int64_t label) const {
  const int64_t grid = size_.channels * size_.grid_height * size_.grid_width;
  std::vector<float> sum(static_cast<size_t>(grid));
  for (int64_t digit = 0; digit < digits_; ++digit, label /= kBase) {
    const float* term = grids_.data() + (digit * kBase + label % kBase) * grid;
    for (int64_t i = 0; i < grid; ++i) sum[static_cast<size_t>(i)] += term[i];
  }
  return sum;
}

void PatternBank::draw(int64_t label, Random& random, float* out) const {
  const std::vector<float> grids = sum_grids(label);
  std::vector<float> row(static_cast<size_t>(size_.width));
  for (int64_t c = 0; c < size_.channels; ++c) {
    int64_t drawn = -1;
    for (int64_t y = 0; y < size_.height; ++y, out += size_.width) {
      const int64_t cell = y * size_.grid_height / size_.height;
      if (cell != drawn) {  // rows of one cell are identical
        const float* cells = grids.data() + (c * size_.grid_height + cell) * size_.grid_width;
        for (int64_t x = 0; x < size_.width; ++x) {
          row[static_cast<size_t>(x)] = cells[x * size_.grid_width / size_.width];
        }
        drawn = cell;
      }
      draw_row(row.data(), random, out);
    }
  }
}

void PatternBank::draw_row(const float* picture, Random& random, float* out) const {
  for (int64_t begin = 0; begin < size_.width; begin += kRun) {
    const int64_t end = std::min(begin + kRun, size_.width);
    const float* noise = noise_.data() + random.below(kPool - kRun);
    for (int64_t x = begin; x < end; ++x) out[x] = picture[x] + noise[x - begin];
  }
}

}  // namespace yoke::data
