// Images kept as raw bytes; converted to normalised floats when a batch is gathered.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "yoke/data/dataset.h"

namespace yoke::data {

struct ByteImages {
  std::string bytes;  // image i: channels x height x width bytes at start + i * stride
  size_t start = 0;
  size_t stride = 0;
  std::vector<uint8_t> labels;  // one per image, below spec.classes
  SampleSpec spec;              // kImage
  std::vector<double> mean;     // per channel, for pixels scaled to 0..1
  std::vector<double> deviation;
  std::vector<std::string> class_names{};  // empty: classes are numbered
};

// Uses the first data.limit images. Images become vectors for a model that takes as many features. Throws
// ConfigError if they do not match the model.
std::unique_ptr<Dataset> make_image_dataset(ByteImages images, const DataOptions& options,
                                            const SampleSpec& wanted);

}  // namespace yoke::data
