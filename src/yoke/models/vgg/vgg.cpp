#include "yoke/models/vgg/vgg.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>

#include <array>

#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {
namespace {

constexpr int64_t kWidths[] = {64, 128, 256, 512, 512};

struct Kind {
  const char* name;
  std::array<int, 5> convolutions;  // of each width
  bool norms = false;
};

void draw_vgg(torch::nn::Module& module) {
  for_each<Conv2d>(module, draw_fan_out);
  for_each<torch::nn::BatchNorm2dImpl>(module, [](auto& norm) { norm.reset_parameters(); });
  for_each<Linear>(module, [](Linear& linear) {
    torch::nn::init::normal_(linear.weight, /*mean=*/0, /*std=*/0.01);
    torch::nn::init::zeros_(linear.bias);
  });
}

// torchvision numbers every layer, norms, ReLU and pooling included.
void add_features(Stack& stack, const Kind& kind) {
  int index = 0;
  for (size_t group = 0; group < kind.convolutions.size(); ++group) {
    for (int i = 0; i < kind.convolutions[group]; ++i) {
      const bool last = i + 1 == kind.convolutions[group];
      const ConvOptions same{.kernel = {3, 3}, .padding = {1, 1}};
      const Pool pool = last ? Pool{.kernel = 2, .stride = 2} : Pool{};
      const std::string path = "features." + std::to_string(index);
      if (kind.norms)
        stack.conv_norm(path, "features." + std::to_string(index + 1), kWidths[group], same, pool);
      else
        stack.conv(path, kWidths[group], same, pool);
      index += (kind.norms ? 3 : 2) + (last ? 1 : 0);
    }
  }
}

Model make(const ModelOptions& options, const Kind& kind) {
  ImageTask task = image_task(options, {.channels = 3, .side = 224, .classes = 1000}, /*least_side=*/32);
  double dropout = dropout_or(options, 0.5);
  Model model = start_model(kind.name, sample_of(task));
  Stack stack(model, task);
  add_features(stack, kind);
  stack.dense("classifier.0", 4096, {.average_to = 7});
  stack.dense("classifier.3", 4096, {.dropout = dropout});
  stack.dense("classifier.6", task.classes, {.dropout = dropout, .relu = false});

  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_vgg(*module); };
  return model;
}

constexpr std::array<int, 5> kEleven = {1, 1, 2, 2, 2}, kSixteen = {2, 2, 3, 3, 3};

}  // namespace

Model make_vgg11(const ModelOptions& options) {
  return make(options, {"vgg11", kEleven});
}

Model make_vgg11_bn(const ModelOptions& options) {
  return make(options, {"vgg11_bn", kEleven, /*norms=*/true});
}

Model make_vgg16(const ModelOptions& options) {
  return make(options, {"vgg16", kSixteen});
}

Model make_vgg16_bn(const ModelOptions& options) {
  return make(options, {"vgg16_bn", kSixteen, /*norms=*/true});
}

}  // namespace yoke::models
