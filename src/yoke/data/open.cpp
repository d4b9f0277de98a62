#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/data/cifar_dataset.h"
#include "yoke/data/dataset.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/names.h"
#include "yoke/data/idx_dataset.h"
#include "yoke/data/images_dataset.h"
#include "yoke/data/libsvm_dataset.h"
#include "yoke/data/synthetic_dataset.h"
#include "yoke/data/tokens_dataset.h"

namespace yoke::data {
namespace {

struct Entry {
  std::string name;
  OpenData make;
};

std::vector<Entry>& table() {
  static std::vector<Entry> entries = {
      {"fashion_mnist", open_fashion_mnist},
      {"mnist", open_mnist},
      {"cifar10", open_cifar10},
      {"cifar100", open_cifar100},
      {"images", open_images},
      {"tokens", open_tokens},
      {"libsvm", open_libsvm},
      {"synthetic", open_synthetic},
  };
  return entries;
}

// data.limit for a data set that does not implement it.
class FirstSamples : public Dataset {
 public:
  FirstSamples(std::unique_ptr<Dataset> all, int64_t count) : all_(std::move(all)), count_(count) {}
  int64_t size() const override { return count_; }
  SampleSpec spec() const override { return all_->spec(); }
  Batch gather(std::span<const int64_t> indices) const override { return all_->gather(indices); }
  Batch draw(std::span<const int64_t> indices, int64_t epoch) const override {
    return all_->draw(indices, epoch);
  }
  std::vector<std::string> class_names() const override { return all_->class_names(); }

 private:
  std::unique_ptr<Dataset> all_;
  int64_t count_;
};

// Checks a program's own data set, because loader and model rely on it.
std::unique_ptr<Dataset> checked(std::unique_ptr<Dataset> set, const DataOptions& options, Split split,
                                 const SampleSpec& wanted) {
  if (set == nullptr || set->size() == 0)
    throw ConfigError("data.name = \"{}\": its {} set has no samples.", options.name,
                      split == Split::kTrain ? "training" : "test");
  const SampleSpec have = set->spec();
  if (have.kind != wanted.kind || have.shape != wanted.shape) throw_mismatch(options, have, wanted);
  const int64_t count = limited(set->size(), options);
  if (count < set->size()) return std::make_unique<FirstSamples>(std::move(set), count);
  return set;
}

}  // namespace

std::unique_ptr<Dataset> open(const DataOptions& options, Split split, const SampleSpec& wanted,
                              uint64_t seed) {
  for (const Entry& entry : table()) {
    if (options.name == entry.name) return entry.make(options, split, wanted, seed);
  }
  throw ConfigError("data.name = '{}': expected one of {}.", options.name, join(data_names()));
}

void register_data(const std::string& name, OpenData open_data) {
  add_data_name(name);
  table().push_back({name, [open_data = std::move(open_data)](const DataOptions& options, Split split,
                                                              const SampleSpec& wanted, uint64_t seed) {
                       return checked(open_data(options, split, wanted, seed), options, split, wanted);
                     }});
}

}  // namespace yoke::data
