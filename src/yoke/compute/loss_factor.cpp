#include "yoke/compute/loss_factor.h"

#include <utility>

namespace yoke::compute {
namespace {

thread_local torch::Tensor expected;

}  // namespace

ExpectedLossFactor::ExpectedLossFactor(torch::Tensor factor)
    : before_(std::exchange(expected, std::move(factor))) {}

ExpectedLossFactor::~ExpectedLossFactor() {
  expected = std::move(before_);
}

const torch::Tensor& expected_loss_factor() {
  return expected;
}

}  // namespace yoke::compute
