#include "yoke/data/tensor_dataset.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/data/fit.h"

namespace yoke::data {
namespace {

class TensorDataset : public Dataset {
 public:
  TensorDataset(torch::Tensor inputs, torch::Tensor target, SampleSpec spec)
      : inputs_(std::move(inputs)), target_(std::move(target)), spec_(std::move(spec)) {}
  int64_t size() const override { return inputs_.size(0); }
  SampleSpec spec() const override { return spec_; }
  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    const auto count = static_cast<int64_t>(indices.size());
    torch::Tensor rows = torch::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
    return {{inputs_.index_select(0, rows)}, target_.index_select(0, rows), count};
  }

 private:
  torch::Tensor inputs_, target_;
  SampleSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> of_tensors(torch::Tensor inputs, torch::Tensor target, SampleSpec spec) {
  if (inputs.dim() == 0 || target.dim() == 0 || inputs.size(0) != target.size(0))
    throw ConfigError("of_tensors(): the inputs have {} rows, the target {}.",
                      inputs.dim() == 0 ? 0 : inputs.size(0), target.dim() == 0 ? 0 : target.size(0));
  if (inputs.sizes().slice(1) != at::IntArrayRef(spec.shape))
    throw ConfigError("of_tensors(): a row of the inputs has the shape {}, not that of {}.",
                      fmt::format("{}", fmt::join(inputs.sizes().slice(1).vec(), "x")), to_string(spec));
  return std::make_unique<TensorDataset>(inputs.contiguous(), target.contiguous(), std::move(spec));
}

}  // namespace yoke::data
