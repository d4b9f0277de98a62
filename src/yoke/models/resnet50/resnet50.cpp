#include "yoke/models/resnet50/resnet50.h"

#include "yoke/compute/layers.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/task.h"
#include "yoke/models/resnet50/bottleneck.h"

namespace yoke::models {
namespace {

struct Stage {
  const char* name;
  int64_t width;
  int bottlenecks;
  int64_t stride;
};
constexpr Stage kStages[] = {
    {"layer1", 64, 3, 1}, {"layer2", 128, 4, 2}, {"layer3", 256, 6, 2}, {"layer4", 512, 3, 2}};

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

void add_stage(Model& model, const Stage& stage, Progress& at) {
  for (int i = 0; i < stage.bottlenecks; ++i) {
    std::string path = std::string(stage.name) + "." + std::to_string(i);
    auto part = add<Bottleneck>(*model.module, path, at.channels, stage.width, i == 0 ? stage.stride : 1);
    auto forward = [part](const Tensors& inputs) -> Tensors { return {part->forward(inputs[0])}; };
    model.blocks.push_back({path, forward, {part}});
    at.multiply_adds += part->multiply_adds(at.side);
    at.channels = 4 * stage.width;
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

}  // namespace

Model make_resnet50(const ModelOptions& options) {
  ImageTask task = image_task(options, {.channels = 3, .side = 224, .classes = 1000}, /*least_side=*/1);
  Model model = start_model("resnet50", sample_of(task));
  Progress at{.channels = task.channels, .side = task.side};
  add_stem(model, at);
  for (const Stage& stage : kStages) add_stage(model, stage, at);
  add_head(model, task.classes, at);

  set_classification(model);
  model.step_flops_per_sample = training_flops(at.multiply_adds);
  model.initialise = [module = model.module] { draw(*module); };
  return model;
}

}  // namespace yoke::models
