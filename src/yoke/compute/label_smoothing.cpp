#include "yoke/compute/label_smoothing.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/compute/interception.h"

namespace yoke::compute {
namespace {

thread_local double smoothing = 0;

constexpr int64_t kNoClass = -100;

}  // namespace

LabelSmoothing::LabelSmoothing(double amount) : before_(std::exchange(smoothing, amount)) {}

LabelSmoothing::~LabelSmoothing() {
  smoothing = before_;
}

double label_smoothing() {
  return smoothing;
}

torch::Tensor smoothed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& target,
                                     double amount) {
  const torch::Tensor rows = logits.reshape({-1, logits.size(-1)});
  if (are_sliced_logits(rows))
    throw ConfigError(
        "train.label_smoothing = {} cannot be combined with parallel.tensor: the ranks hold slices of the "
        "classes. Set train.label_smoothing = 0.",
        amount);
  return at::cross_entropy_loss(rows, target.reshape({-1}), /*weight=*/{}, at::Reduction::Mean, kNoClass,
                                amount);
}

}  // namespace yoke::compute
