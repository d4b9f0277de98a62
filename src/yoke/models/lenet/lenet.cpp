#include "yoke/models/lenet/lenet.h"

#include "yoke/models/common/initialise.h"
#include "yoke/models/common/stack.h"

namespace yoke::models {

Model make_lenet(const ModelOptions& options) {
  ImageTask task = image_task(options, {.channels = 1, .side = 28, .classes = 10}, /*least_side=*/12);
  Model model = start_model("lenet", sample_of(task));
  Stack stack(model, task);
  Pool half{.kernel = 2, .stride = 2};
  stack.conv("conv1", 6, {.kernel = {5, 5}, .padding = {2, 2}}, half);
  stack.conv("conv2", 16, {.kernel = {5, 5}}, half);
  stack.dense("fc1", 120);
  stack.dense("fc2", 84);
  stack.dense("fc3", task.classes, {.relu = false});

  set_classification(model);
  model.step_flops_per_sample = training_flops(stack.multiply_adds());
  model.initialise = [module = model.module] { draw_default(*module); };
  return model;
}

}  // namespace yoke::models
