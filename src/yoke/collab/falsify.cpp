#include "yoke/collab/falsify.h"

#include <cmath>

#include "yoke/base/random.h"

namespace yoke::collab {
namespace {

constexpr double kScale = 100, kNoise = 30, kDrift = 10;

double size_of_elements(std::span<const float> gradient) {
  double sum = 0;
  for (float value : gradient) sum += static_cast<double>(value) * value;
  return gradient.empty() ? 0 : std::sqrt(sum / static_cast<double>(gradient.size()));
}

void multiply(std::span<float> gradient, double factor) {
  for (float& value : gradient) value *= static_cast<float>(factor);
}

}  // namespace

void falsify(fault::Effect effect, uint64_t seed, std::span<float> gradient) {
  const double size = size_of_elements(gradient);
  Random random(seed);
  switch (effect) {
    case fault::Effect::kFlip:
      return multiply(gradient, -1);
    case fault::Effect::kScale:
      return multiply(gradient, kScale);
    case fault::Effect::kCorrupt:
      return multiply(gradient, -kScale);
    case fault::Effect::kNoise:
      for (float& value : gradient) value = static_cast<float>(kNoise * size * random.normal());
      return;
    case fault::Effect::kDrift:
      for (float& value : gradient) value += static_cast<float>(kDrift * size);
      return;
    default:
      return;
  }
}

}  // namespace yoke::collab
