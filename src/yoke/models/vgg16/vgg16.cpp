#include "yoke/models/vgg16/vgg16.h"

#include <torch/nn/init.h>

#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {
namespace {

struct Group {
  int64_t width;
  int convolutions;
};
constexpr Group kGroups[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};

void draw_vgg16(torch::nn::Module& module) {
  for_each<Conv2d>(module, draw_fan_out);
  for_each<Linear>(module, [](Linear& linear) {
    torch::nn::init::normal_(linear.weight, /*mean=*/0, /*std=*/0.01);
    torch::nn::init::zeros_(linear.bias);
  });
}

// torchvision numbers every layer, ReLU and pooling included.
void add_features(Stack& stack) {
  int index = 0;
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.convolutions; ++i) {
      bool last = i + 1 == group.convolutions;
      stack.conv("features." + std::to_string(index), group.width, {.kernel = {3, 3}, .padding = {1, 1}},
                 last ? Pool{.kernel = 2, .stride = 2} : Pool{});
      index += last ? 3 : 2;
    }
  }
}

}  // namespace

Model make_vgg16(const ModelOptions& options) {
  ImageTask task = image_task(options, {.channels = 3, .side = 224, .classes = 1000}, /*least_side=*/32);
  double dropout = dropout_or(options, 0.5);
  Model model = start_model("vgg16", sample_of(task));
  Stack stack(model, task);
  add_features(stack);
  stack.dense("classifier.0", 4096, {.average_to = 7});
  stack.dense("classifier.3", 4096, {.dropout = dropout});
  stack.dense("classifier.6", task.classes, {.dropout = dropout, .relu = false});

  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_vgg16(*module); };
  return model;
}

}  // namespace yoke::models
