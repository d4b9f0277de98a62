// CIFAR-10 and CIFAR-100, the binary versions: data_batch_1.bin .. data_batch_5.bin and test_batch.bin;
// train.bin, test.bin and, for the names of classes, fine_label_names.txt.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h.
std::unique_ptr<Dataset> open_cifar10(const DataOptions& options, Split split, const SampleSpec& wanted,
                                      uint64_t seed);
std::unique_ptr<Dataset> open_cifar100(const DataOptions& options, Split split, const SampleSpec& wanted,
                                       uint64_t seed);

}  // namespace yoke::data
