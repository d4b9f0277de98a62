// Sparse samples from libsvm text (formats/libsvm.h), for models on embedding_bag.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h. data.dir is a folder with train.libsvm and test.libsvm, or the training file
// itself. A batch's inputs are indices int64 [elements], values float [elements] and offsets int64 [samples],
// its target float [samples] of 0 and 1.
std::unique_ptr<Dataset> open_libsvm(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t seed);

}  // namespace yoke::data
