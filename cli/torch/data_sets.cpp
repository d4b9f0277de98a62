#include "cli/torch/data_sets.h"

#include "yoke/base/error.h"
#include "yoke/models/model.h"

namespace yoke::cli {

void DataSets::prepare() {
  try {
    const SampleSpec wanted = models::lay_out(config_.model).sample;
    open(data::Split::kTrain, wanted);
    if (config_.train.loop.evaluate) open(data::Split::kTest, wanted);
  } catch (const Error&) {
  }
}

std::shared_ptr<const data::Dataset> DataSets::open(data::Split split, const SampleSpec& wanted) {
  if (auto kept = kept_.find(split); kept != kept_.end()) return kept->second;
  std::shared_ptr<const data::Dataset> opened =
      data::open(config_.data, split, wanted, static_cast<uint64_t>(config_.train.loop.seed));
  if (config_.elastic.enabled) kept_[split] = opened;
  return opened;
}

}  // namespace yoke::cli
