#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/data/cifar_dataset.h"
#include "yoke/data/dataset.h"
#include "yoke/data/idx_dataset.h"
#include "yoke/data/libsvm_dataset.h"
#include "yoke/data/synthetic_dataset.h"
#include "yoke/data/tokens_dataset.h"

namespace yoke::data {
namespace {

using Factory = decltype(&open);

struct Entry {
  const char* name;
  Factory make;
};

constexpr Entry kDatasets[] = {
    {"fashion_mnist", open_fashion_mnist},
    {"mnist", open_mnist},
    {"cifar10", open_cifar10},
    {"tokens", open_tokens},
    {"libsvm", open_libsvm},
    {"synthetic", open_synthetic},
};

}  // namespace

std::unique_ptr<Dataset> open(const DataOptions& options, Split split, const SampleSpec& wanted,
                              uint64_t seed) {
  std::vector<std::string> names;
  for (const Entry& entry : kDatasets) {
    if (options.name == entry.name) return entry.make(options, split, wanted, seed);
    names.push_back(entry.name);
  }
  throw ConfigError("data.name = '{}': expected one of {}.", options.name, join(names));
}

}  // namespace yoke::data
