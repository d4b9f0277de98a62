// Synthetic, learnable samples of every kind, for trying models without files.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h. A sample depends on `seed`, split and its index only. Train and test follow the
// same rule with different samples: data.samples of them to train, an eighth as many (at least one) to test.
//
//   images, vectors  a picture of their class plus noise
//   tokens           up to 256 different ones, nine of ten followed by its fixed successor
//   sparse           few features of many, low indices more often; the label is the sign of a hidden sum
//   video            frames of one of ten scenes, which determines the words. Input words are the target's,
//                    shifted by one after word 0, which starts every caption and occurs nowhere else
//
// data.noise: that share of the training labels of images, vectors and sparse samples is drawn from all
// classes. Test labels are true.
std::unique_ptr<Dataset> open_synthetic(const DataOptions& options, Split split, const SampleSpec& wanted,
                                        uint64_t seed);

}  // namespace yoke::data
