#include "yoke/models/common/task.h"

#include "yoke/base/error.h"
#include "yoke/compute/label_smoothing.h"
#include "yoke/compute/layers.h"

namespace yoke::models {

int64_t size_or(const char* key, int64_t value, int64_t own, int64_t least) {
  if (value == 0) return own;
  if (value >= least) return value;
  throw ConfigError("model.{} = {}: expected at least {} (0: the model's default, {})", key, value, least,
                    own);
}

double dropout_or(const ModelOptions& options, double own) {
  if (options.dropout == -1) return own;
  if (options.dropout >= 0 && options.dropout < 1) return options.dropout;
  throw ConfigError(
      "model.dropout = {}: expected a value from 0 to below 1, or -1 for the model's default, {}",
      options.dropout, own);
}

Model start_model(const std::string& name, const SampleSpec& sample) {
  Model model;
  model.name = name;
  model.module = std::make_shared<torch::nn::Module>(name);
  model.sample = sample;
  return model;
}

ImageTask image_task(const ModelOptions& options, ImageTask own, int64_t least_side) {
  if (options.image_size != 0 && options.image_size < least_side) {
    throw ConfigError(
        "model.image_size = {}: {} needs images of at least {}x{}. Hint: its default size is {}.",
        options.image_size, options.name, least_side, least_side, own.side);
  }
  own.side = size_or("image_size", options.image_size, own.side);
  own.classes = size_or("classes", options.classes, own.classes);
  return own;
}

SampleSpec sample_of(const ImageTask& task) {
  return {
      .kind = SampleKind::kImage, .shape = {task.channels, task.side, task.side}, .classes = task.classes};
}

torch::Tensor mean_cross_entropy(const torch::Tensor& logits, const torch::Tensor& target) {
  bool reduced = at::isReducedFloatingType(logits.scalar_type());
  const torch::Tensor wide = reduced ? logits.to(torch::kFloat) : logits;
  if (target.is_floating_point())
    return at::cross_entropy_loss(wide, target.to(torch::kFloat), {}, at::Reduction::Mean, -100,
                                  compute::label_smoothing());
  if (const double amount = compute::label_smoothing(); amount > 0)
    return compute::smoothed_cross_entropy(wide, target, amount);
  return compute::cross_entropy(wide, target);
}

void set_classification(Model& model) {
  model.loss = [](const Tensors& outputs, const torch::Tensor& target) {
    return mean_cross_entropy(outputs[0], target);
  };
  model.correct = [](const Tensors& outputs, const torch::Tensor& target) {
    return (outputs[0].argmax(/*dim=*/1) == target).sum();
  };
}

}  // namespace yoke::models
