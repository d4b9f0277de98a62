// Made-up samples of every kind, for trying out models without files. They can be learned.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// As open() in dataset.h. A sample depends on `seed`, split and its index alone. Train and test have the same
// rule and different samples: data.samples of them to train, an eighth as many (at least one) to test.
//
//   images, vectors  a picture of their class and noise
//   tokens           up to 256 different ones, nine of ten followed by its one successor
//   sparse           few features of many, low indices more often; the label is the sign of a hidden
//   weighting video            frames that show one of ten scenes; the scene decides the words. Input words
//   are the target's
//                    moved on by one behind word 0, which begins every description and stands nowhere else
std::unique_ptr<Dataset> open_synthetic(const DataOptions& options, Split split, const SampleSpec& wanted,
                                        uint64_t seed);

}  // namespace yoke::data
