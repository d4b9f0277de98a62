#include "yoke/models/common/stack.h"

#include <torch/nn/modules/batchnorm.h>

#include "yoke/compute/layers.h"

namespace yoke::models {

Stack::Stack(Model& model, const ImageTask& input)
    : model_(model), channels_(input.channels), side_(input.side) {}

Stack::Stack(Model& model, int64_t features) : model_(model), channels_(features), side_(1) {}

void Stack::conv(const std::string& path, int64_t out, const ConvOptions& options, Pool pool) {
  auto layer = add<Conv2d>(*model_.module, path, channels_, out, options);
  auto forward = [layer, pool](const Tensors& inputs) -> Tensors {
    compute::ConvShape shape{layer->options.stride, layer->options.padding, layer->options.groups};
    if (pool.kernel == 0) return {compute::conv2d_relu(inputs[0], layer->weight, layer->bias, shape)};
    return {compute::conv2d_relu_max_pool2d(inputs[0], layer->weight, layer->bias, shape, pool.kernel,
                                            pool.stride)};
  };
  model_.blocks.push_back({path, forward, {layer}});
  count(*layer, out, pool);
}

void Stack::conv_norm(const std::string& path, const std::string& norm_path, int64_t out,
                      const ConvOptions& options, Pool pool) {
  auto layer = add<Conv2d>(*model_.module, path, channels_, out, options);
  auto norm = add<torch::nn::BatchNorm2dImpl>(*model_.module, norm_path, out);
  auto forward = [layer, norm, pool](const Tensors& inputs) -> Tensors {
    torch::Tensor x = compute::batch_norm_relu(*norm, layer->forward(inputs[0]));
    if (pool.kernel == 0) return {x};
    return {compute::max_pool2d(x, pool.kernel, pool.stride, /*padding=*/0)};
  };
  model_.blocks.push_back({path, forward, {layer, norm}});
  count(*layer, out, pool);
}

void Stack::count(const Conv2d& layer, int64_t out, Pool pool) {
  multiply_adds_ += layer.multiply_adds(side_);
  channels_ = out;
  side_ = layer.side_after(side_);
  if (pool.kernel != 0) side_ = (side_ - pool.kernel) / pool.stride + 1;
}

void Stack::dense(const std::string& path, int64_t out, const DenseOptions& options) {
  if (options.average_to != 0) side_ = options.average_to;
  int64_t in = channels_ * side_ * side_;
  auto layer = add<Linear>(*model_.module, path, in, out);
  auto forward = [layer, options](const Tensors& inputs) -> Tensors {
    torch::Tensor x = inputs[0];
    if (options.average_to != 0) x = average_to(x, options.average_to);
    x = at::dropout(x.flatten(1), options.dropout, layer->is_training());
    return {options.relu ? compute::linear_relu(x, layer->weight, layer->bias) : layer->forward(x)};
  };
  model_.blocks.push_back({path, forward, {layer}});
  multiply_adds_ += in * out;
  channels_ = out;
  side_ = 1;
}

}  // namespace yoke::models
