#include "yoke/models/vgg_small/vgg_small.h"

#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {

Model make_vgg_small(const ModelOptions& options) {
  ImageTask task = image_task(options, {.channels = 3, .side = 32, .classes = 10}, /*least_side=*/16);
  Model model = start_model("vgg_small", sample_of(task));
  Stack stack(model, task);
  ConvOptions same{.kernel = {3, 3}, .padding = {1, 1}};
  int index = 1;
  for (int64_t width : {32, 64, 128, 256}) {
    stack.conv("conv" + std::to_string(index++), width, same);
    stack.conv("conv" + std::to_string(index++), width, same, {.kernel = 2, .stride = 2});
  }
  stack.dense("fc1", 3200);
  stack.dense("fc2", 3200);
  stack.dense("fc3", task.classes, {.relu = false});

  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_default(*module); };
  return model;
}

}  // namespace yoke::models
