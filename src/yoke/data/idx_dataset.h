// Fashion-MNIST and MNIST: four IDX files, plain or gzipped.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h.
std::unique_ptr<Dataset> open_fashion_mnist(const DataOptions& options, Split split, const SampleSpec& wanted,
                                            uint64_t seed);
std::unique_ptr<Dataset> open_mnist(const DataOptions& options, Split split, const SampleSpec& wanted,
                                    uint64_t seed);

}  // namespace yoke::data
