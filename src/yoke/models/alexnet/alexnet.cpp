#include "yoke/models/alexnet/alexnet.h"

#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {

namespace {

struct Widths {
  int64_t conv1, conv2;
  int64_t groups;  // of the second, fourth and fifth convolution
};

Model make(const ModelOptions& options, const Widths& widths) {
  ImageTask task = image_task(options, {.channels = 3, .side = 224, .classes = 1000}, /*least_side=*/63);
  double dropout = dropout_or(options, 0.5);
  Model model = start_model(widths.groups == 1 ? "alexnet" : "alexnet_original", sample_of(task));
  Stack stack(model, task);
  Pool pool{.kernel = 3, .stride = 2};
  ConvOptions same{.kernel = {3, 3}, .padding = {1, 1}};
  ConvOptions grouped{.kernel = {3, 3}, .padding = {1, 1}, .groups = widths.groups};
  stack.conv("features.0", widths.conv1, {.kernel = {11, 11}, .stride = {4, 4}, .padding = {2, 2}}, pool);
  stack.conv("features.3", widths.conv2, {.kernel = {5, 5}, .padding = {2, 2}, .groups = widths.groups},
             pool);
  stack.conv("features.6", 384, same);
  stack.conv("features.8", widths.groups == 1 ? 256 : 384, grouped);
  stack.conv("features.10", 256, grouped, pool);
  stack.dense("classifier.1", 4096, {.dropout = dropout, .average_to = 6});
  stack.dense("classifier.4", 4096, {.dropout = dropout});
  stack.dense("classifier.6", task.classes, {.relu = false});

  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_default(*module); };
  return model;
}

}  // namespace

Model make_alexnet(const ModelOptions& options) {
  return make(options, {.conv1 = 64, .conv2 = 192, .groups = 1});
}

Model make_alexnet_of_two(const ModelOptions& options) {
  return make(options, {.conv1 = 96, .conv2 = 256, .groups = 2});
}

}  // namespace yoke::models
