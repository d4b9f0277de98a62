// Checks gradients against differences of the loss; for tests.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include "yoke/models/test_batch.h"

namespace yoke::models {

// Compares a few elements of every parameter's gradient. Requires: a model in fp64 whose loss does not draw
// random numbers.
inline void expect_gradients_match_differences(const Model& model, const TestBatch& batch) {
  constexpr double kStep = 1e-5;
  auto loss = [&] { return model.loss(model.forward(batch.inputs), batch.target); };
  loss().backward();
  torch::NoGradGuard no_grad;
  for (const auto& item : model.module->named_parameters()) {
    torch::Tensor flat = item.value().view(-1);
    torch::Tensor gradient = item.value().grad().reshape(-1);
    for (int64_t i : {int64_t{0}, flat.numel() / 2, flat.numel() - 1}) {
      double before = flat[i].item<double>();
      flat[i].fill_(before + kStep);
      double above = loss().item<double>();
      flat[i].fill_(before - kStep);
      double below = loss().item<double>();
      flat[i].fill_(before);
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-8)
          << item.key() << " element " << i;
    }
  }
}

}  // namespace yoke::models
