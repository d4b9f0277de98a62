// A view of a picture as the input of a model.
#pragma once

#include "yoke/data/formats/images/view.h"

namespace yoke::data {

// Memory that is reused from picture to picture; one for each thread.
struct RenderSpace {
  std::vector<float> rows, planes;
};

// Writes `channels` (3, or 1: grey) planes of `side` x `side` values to `out`: `view` of `picture`, whose
// region is picture.region, resampled by a triangle filter, changed, and normalised with ImageNet's mean and
// standard deviation.
void render(const Picture& picture, const View& view, int channels, int side, RenderSpace& space, float* out);

}  // namespace yoke::data
