#include "yoke/data/formats/images/render.h"

#include <algorithm>

#include "yoke/kernels/resample.h"

namespace yoke::data {
namespace {

constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};
constexpr float kGrey[] = {0.299f, 0.587f, 0.114f};  // ITU-R 601
constexpr float kGreyMean = 0.449f, kGreyDeviation = 0.226f;

using Planes = float* const (&)[3];

float grey_of(Planes planes, size_t i) {
  return kGrey[0] * planes[0][i] + kGrey[1] * planes[1][i] + kGrey[2] * planes[2][i];
}

float bounded(float value) {
  return std::clamp(value, 0.f, 255.f);
}

void scale(Planes planes, size_t count, float factor) {
  for (float* plane : planes)
    for (size_t i = 0; i < count; ++i) plane[i] = bounded(plane[i] * factor);
}

void change_contrast(Planes planes, size_t count, float factor) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += grey_of(planes, i);
  const float rest = (1 - factor) * static_cast<float>(sum / static_cast<double>(count));
  for (float* plane : planes)
    for (size_t i = 0; i < count; ++i) plane[i] = bounded(plane[i] * factor + rest);
}

void change_saturation(Planes planes, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    const float rest = (1 - factor) * grey_of(planes, i);
    for (float* plane : planes) plane[i] = bounded(plane[i] * factor + rest);
  }
}

void change_colours(Planes planes, size_t count, const View& view) {
  if (view.brightness != 1) scale(planes, count, view.brightness);
  if (view.contrast != 1) change_contrast(planes, count, view.contrast);
  if (view.saturation != 1) change_saturation(planes, count, view.saturation);
}

// Black where nothing was moved to.
void move(float* plane, int side, int right, int down) {
  std::vector<float> moved(static_cast<size_t>(side) * static_cast<size_t>(side), 0.f);
  for (int y = std::max(0, down); y < std::min(side, side + down); ++y)
    for (int x = std::max(0, right); x < std::min(side, side + right); ++x)
      moved[static_cast<size_t>(y * side + x)] = plane[(y - down) * side + x - right];
  std::copy(moved.begin(), moved.end(), plane);
}

void normalise(const float* plane, size_t count, float mean, float deviation, float* out) {
  const float factor = 1 / (255 * deviation), offset = -mean / deviation;
  for (size_t i = 0; i < count; ++i) out[i] = plane[i] * factor + offset;
}

}  // namespace

void render(const Picture& picture, const View& view, int channels, int side, RenderSpace& space,
            float* out) {
  const size_t count = static_cast<size_t>(side) * static_cast<size_t>(side);
  space.planes.resize(3 * count);
  float* const planes[3] = {space.planes.data(), space.planes.data() + count,
                            space.planes.data() + 2 * count};
  const Region& region = picture.region;
  kernels::resample_rgbx({picture.pixels.data(), picture.size.width, picture.size.height},
                         {region.x, region.width, side, view.flip}, {region.y, region.height, side, false},
                         space.rows, planes);
  change_colours(planes, count, view);
  if (view.shift_x != 0 || view.shift_y != 0)
    for (float* plane : planes) move(plane, side, view.shift_x, view.shift_y);
  if (channels == 1) {
    for (size_t i = 0; i < count; ++i) planes[0][i] = grey_of(planes, i);
    normalise(planes[0], count, kGreyMean, kGreyDeviation, out);
    return;
  }
  for (size_t c = 0; c < 3; ++c) normalise(planes[c], count, kMean[c], kDeviation[c], out + c * count);
}

}  // namespace yoke::data
