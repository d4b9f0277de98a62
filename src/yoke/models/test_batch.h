// Random inputs and targets for a model; for tests.
#pragma once

#include <torch/types.h>

#include "yoke/models/model.h"

namespace yoke::models {

struct TestBatch {
  Tensors inputs;
  torch::Tensor target;
};

inline TestBatch make_test_batch(const SampleSpec& spec, int64_t samples) {
  auto at = [&](size_t i) { return spec.shape.at(i); };
  torch::Tensor class_target = torch::randint(spec.classes, {samples});
  switch (spec.kind) {
    case SampleKind::kImage:
      return {{torch::randn({samples, at(0), at(1), at(2)})}, class_target};
    case SampleKind::kVector:
      return {{torch::randn({samples, at(0)})}, class_target};
    case SampleKind::kTokens:
      return {{torch::randint(spec.classes, {samples, at(0)})},
              torch::randint(spec.classes, {samples, at(0)})};
    case SampleKind::kVideo:
      return {{torch::randn({samples, at(0), at(1)}), torch::randint(spec.classes, {samples, at(2)})},
              torch::randint(spec.classes, {samples, at(2)})};
    case SampleKind::kSparse:  // every row names every feature once
      return {{torch::arange(at(0)).repeat({samples}), torch::randn({samples * at(0)}),
               torch::arange(samples) * at(0)},
              class_target.to(torch::kFloat)};
  }
  return {};
}

// `batch` with floating-point inputs in `type`.
inline TestBatch converted(TestBatch batch, torch::ScalarType type) {
  for (torch::Tensor& input : batch.inputs) {
    if (input.is_floating_point()) input = input.to(type);
  }
  return batch;
}

}  // namespace yoke::models
