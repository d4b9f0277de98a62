#include "yoke/data/formats/images/view.h"

#include <algorithm>
#include <cmath>

namespace yoke::data {
namespace {

double between(double low, double high, Random& random) {
  return low + (high - low) * random.uniform();
}

Region centre(Size size, double width, double height) {
  return {(size.width - width) / 2, (size.height - height) / 2, width, height};
}

Region random_resized_crop(Size size, Random& random) {
  const double area = static_cast<double>(size.width) * size.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * between(0.08, 1, random);
    const double ratio = std::exp(between(std::log(3.0 / 4), std::log(4.0 / 3), random));
    const double width = std::round(std::sqrt(part * ratio)), height = std::round(std::sqrt(part / ratio));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const auto x = random.below(static_cast<uint64_t>(size.width - width) + 1);
    const auto y = random.below(static_cast<uint64_t>(size.height - height) + 1);
    return {static_cast<double>(x), static_cast<double>(y), width, height};
  }
  // Long and narrow: as much as the ratio admits.
  return centre(size, std::min<double>(size.width, std::round(size.height * 4.0 / 3)),
                std::min<double>(size.height, std::round(size.width * 4.0 / 3)));
}

float jittered(double jitter, Random& random) {
  return static_cast<float>(between(std::max(0.0, 1 - jitter), 1 + jitter, random));
}

int moved(int most, Random& random) {
  return static_cast<int>(random.below(2 * static_cast<uint64_t>(most) + 1)) - most;
}

// Gamma(shape, 1) by Marsaglia and Tsang (2000).
double draw_gamma(double shape, Random& random) {
  if (shape < 1) return draw_gamma(shape + 1, random) * std::pow(1 - random.uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random.normal(), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - random.uniform()) < x * x / 2 + d * (1 - v + std::log(v))) return d * v;
  }
}

}  // namespace

View training_view(const Augmentation& augmentation, Size size, int side, Random& random) {
  View view = test_view(augmentation, size);
  if (augmentation.kind == "imagenet") {
    view.region = random_resized_crop(size, random);
    view.flip = random.below(2) == 1;
  } else if (augmentation.kind == "cifar") {
    view.flip = random.below(2) == 1;
    view.shift_x = moved(side / 8, random);
    view.shift_y = moved(side / 8, random);
  }
  if (augmentation.jitter > 0) {
    view.brightness = jittered(augmentation.jitter, random);
    view.contrast = jittered(augmentation.jitter, random);
    view.saturation = jittered(augmentation.jitter, random);
  }
  return view;
}

View test_view(const Augmentation& augmentation, Size size) {
  const double side = std::min(size.width, size.height) * (augmentation.kind == "imagenet" ? 0.875 : 1);
  View view;
  view.region = centre(size, side, side);
  return view;
}

double draw_mixup(double alpha, Random& random) {
  const double one = draw_gamma(alpha, random), other = draw_gamma(alpha, random);
  return one + other > 0 ? one / (one + other) : 1;
}

}  // namespace yoke::data
