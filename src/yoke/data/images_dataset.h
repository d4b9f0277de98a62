// Folders or archives of JPEG and PNG files, decoded when a batch is made.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h. Pictures take the size that the model wants; its classes must be as many as there
// are folders.
std::unique_ptr<Dataset> open_images(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t seed);

}  // namespace yoke::data
