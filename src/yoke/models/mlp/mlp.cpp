#include "yoke/models/mlp/mlp.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {
namespace {

std::vector<int64_t> layer_sizes(const ModelOptions& options) {
  if (options.sizes.empty()) return {784, 256, 10};
  bool positive =
      std::all_of(options.sizes.begin(), options.sizes.end(), [](int64_t size) { return size >= 1; });
  if (options.sizes.size() < 2 || !positive) {
    throw ConfigError(
        "model.sizes: mlp needs two or more widths of at least 1, input first. Hint: [784, 256, 10].");
  }
  return options.sizes;
}

}  // namespace

Model make_mlp(const ModelOptions& options) {
  std::vector<int64_t> sizes = layer_sizes(options);
  Model model =
      start_model("mlp", {.kind = SampleKind::kVector, .shape = {sizes.front()}, .classes = sizes.back()});
  Stack stack(model, sizes.front());
  for (size_t i = 1; i < sizes.size(); ++i) {
    stack.dense("layers." + std::to_string(i - 1), sizes[i], {.relu = i + 1 < sizes.size()});
  }
  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_default(*module); };
  return model;
}

}  // namespace yoke::models
