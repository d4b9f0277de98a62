// Task of a model: sizes from the options, the loss, and operation counts.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/models/model.h"

namespace yoke::models {

// `value`, or `own` if it is 0. Throws ConfigError naming the key if it is below `least`.
int64_t size_or(const char* key, int64_t value, int64_t own, int64_t least = 1);
// The same for model.dropout, whose default is -1.
double dropout_or(const ModelOptions& options, double own);

// A model without layers.
Model start_model(const std::string& name, const SampleSpec& sample);

// Classification of square images.
struct ImageTask {
  int64_t channels = 3;
  int64_t side = 224;
  int64_t classes = 1000;
};
// `own` with model.classes and model.image_size applied. Throws ConfigError for a side below `least_side`.
ImageTask image_task(const ModelOptions& options, ImageTask own, int64_t least_side);
SampleSpec sample_of(const ImageTask& task);

// Mean cross entropy, in fp32 or better whatever the logits' type. logits [.., classes]; target: int64 [..],
// or the share of each class, float [.., classes].
torch::Tensor mean_cross_entropy(const torch::Tensor& logits, const torch::Tensor& target);
// Loss and number of correct answers of a classifier whose first output is logits [N, classes].
void set_classification(Model& model);

// Operations of a training step: 2 per multiply-add, and backward costs twice the forward pass.
inline double training_flops(int64_t forward_multiply_adds) {
  return 6.0 * static_cast<double>(forward_multiply_adds);
}

}  // namespace yoke::models
