// Images kept as the bytes of their files; made into normalised floats when a batch is gathered.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "yoke/data/dataset.h"

namespace yoke::data {

struct ByteImages {
  std::string bytes;  // image i: channels x height x width bytes from start + i * stride on
  size_t start = 0;
  size_t stride = 0;
  std::vector<uint8_t> labels;  // one for each image, each below spec.classes
  SampleSpec spec;              // kImage
  std::vector<double> mean;     // of each channel, for pixels scaled to 0..1
  std::vector<double> deviation;
};

// Takes the first data.limit images. Images become vectors for a model that takes as many features. Throws
// ConfigError where they are not what the model takes.
std::unique_ptr<Dataset> make_image_dataset(ByteImages images, const DataOptions& options,
                                            const SampleSpec& wanted);

}  // namespace yoke::data
