// CIFAR-10, the binary version: data_batch_1.bin .. data_batch_5.bin and test_batch.bin.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h.
std::unique_ptr<Dataset> open_cifar10(const DataOptions& options, Split split, const SampleSpec& wanted,
                                      uint64_t seed);

}  // namespace yoke::data
