#include "yoke/models/resnet/resnet.h"

#include <array>

#include "yoke/compute/layers.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/task.h"
#include "yoke/models/resnet/basic_block.h"
#include "yoke/models/resnet/bottleneck.h"

namespace yoke::models {
namespace {

struct Stage {
  const char* name;
  int64_t width;
  int64_t stride;
};
constexpr Stage kStages[] = {{"layer1", 64, 1}, {"layer2", 128, 2}, {"layer3", 256, 2}, {"layer4", 512, 2}};
using Depths = std::array<int, 4>;  // blocks of each stage

// What the parts add up to as the network grows.
struct Progress {
  int64_t channels;
  int64_t side;
  int64_t multiply_adds = 0;
};

void add_stem(Model& model, Progress& at) {
  auto conv = add<Conv2d>(*model.module, "conv1", at.channels, 64,
                          ConvOptions{.kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}, .bias = false});
  auto bn = add<torch::nn::BatchNorm2dImpl>(*model.module, "bn1", 64);
  auto forward = [conv, bn](const Tensors& inputs) -> Tensors {
    torch::Tensor x = compute::batch_norm_relu(*bn, conv->forward(inputs[0]));
    return {compute::max_pool2d(x, /*kernel=*/3, /*stride=*/2, /*padding=*/1)};
  };
  model.blocks.push_back({"conv1", forward, {conv, bn}});
  at.multiply_adds += conv->multiply_adds(at.side);
  at.channels = 64;
  at.side = (conv->side_after(at.side) + 2 - 3) / 2 + 1;
}

template <class Part>
void add_stage(Model& model, const Stage& stage, int parts, Progress& at) {
  for (int i = 0; i < parts; ++i) {
    std::string path = std::string(stage.name) + "." + std::to_string(i);
    auto part = add<Part>(*model.module, path, at.channels, stage.width, i == 0 ? stage.stride : 1);
    auto forward = [part](const Tensors& inputs) -> Tensors { return {part->forward(inputs[0])}; };
    model.blocks.push_back({path, forward, {part}});
    at.multiply_adds += part->multiply_adds(at.side);
    at.channels = Part::kWidening * stage.width;
    at.side = part->side_after(at.side);
  }
}

void add_head(Model& model, int64_t classes, Progress& at) {
  auto fc = add<Linear>(*model.module, "fc", at.channels, classes);
  auto forward = [fc](const Tensors& inputs) -> Tensors {
    return {fc->forward(average_to(inputs[0], 1).flatten(1))};
  };
  model.blocks.push_back({"fc", forward, {fc}});
  at.multiply_adds += at.channels * classes;
}

void draw(torch::nn::Module& module) {
  for_each<Conv2d>(module, draw_fan_out);
  for_each<Linear>(module, [](Linear& linear) { draw_default(linear); });
  for_each<torch::nn::BatchNorm2dImpl>(module, [](auto& norm) { norm.reset_parameters(); });
}

template <class Part>
Model make(const char* name, const ModelOptions& options, const Depths& depths) {
  ImageTask task = image_task(options, {.channels = 3, .side = 224, .classes = 1000}, /*least_side=*/1);
  Model model = start_model(name, sample_of(task));
  Progress at{.channels = task.channels, .side = task.side};
  add_stem(model, at);
  for (size_t i = 0; i < depths.size(); ++i) add_stage<Part>(model, kStages[i], depths[i], at);
  add_head(model, task.classes, at);

  set_classification(model);
  model.step_flops_per_sample = training_flops(at.multiply_adds);
  model.initialise = [module = model.module] { draw(*module); };
  return model;
}

}  // namespace

Model make_resnet18(const ModelOptions& options) {
  return make<BasicBlock>("resnet18", options, {2, 2, 2, 2});
}

Model make_resnet34(const ModelOptions& options) {
  return make<BasicBlock>("resnet34", options, {3, 4, 6, 3});
}

Model make_resnet50(const ModelOptions& options) {
  return make<Bottleneck>("resnet50", options, {3, 4, 6, 3});
}

Model make_resnet101(const ModelOptions& options) {
  return make<Bottleneck>("resnet101", options, {3, 4, 23, 3});
}

Model make_resnet152(const ModelOptions& options) {
  return make<Bottleneck>("resnet152", options, {3, 8, 36, 3});
}

}  // namespace yoke::models
