#include "yoke/models/sparse_lr/sparse_lr.h"

#include <torch/nn/init.h>

#include "yoke/models/common/task.h"

namespace yoke::models {
namespace {

class SparseLr : public torch::nn::Module {
 public:
  explicit SparseLr(int64_t features) {
    weight_ = register_parameter("weight", torch::empty({features, 1}));
    bias_ = register_parameter("bias", torch::empty({1}));
  }

  torch::Tensor forward(const torch::Tensor& indices, const torch::Tensor& values,
                        const torch::Tensor& offsets) const {
    constexpr int64_t kSum = 0;
    auto [sums, bag, size, max] =
        at::embedding_bag(weight_, indices, offsets, /*scale_grad_by_freq=*/false, kSum, /*sparse=*/false,
                          values.to(weight_.scalar_type()), /*include_last_offset=*/false);
    return sums.squeeze(1) + bias_;
  }

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
};

}  // namespace

Model make_sparse_lr(const ModelOptions& options) {
  int64_t features = size_or("features", options.features, 4096);
  auto module = std::make_shared<SparseLr>(features);
  Model model;
  model.name = "sparse_lr";
  model.module = module;
  model.sample = {.kind = SampleKind::kSparse, .shape = {features}, .classes = 2};
  auto forward = [module](const Tensors& inputs) -> Tensors {
    return {module->forward(inputs[0], inputs[1], inputs[2])};
  };
  model.blocks.push_back({"logits", forward, {module}});

  model.loss = [](const Tensors& outputs, const torch::Tensor& target) {
    bool reduced = at::isReducedFloatingType(outputs[0].scalar_type());
    torch::Tensor logits = reduced ? outputs[0].to(torch::kFloat) : outputs[0];
    return at::binary_cross_entropy_with_logits(logits, target.to(logits.scalar_type()));
  };
  model.correct = [](const Tensors& outputs, const torch::Tensor& target) {
    return ((outputs[0] > 0) == (target > 0.5)).sum();
  };
  // step_flops_per_sample stays 0: there is no matrix product, and the work depends on the sample.
  model.initialise = [module] {
    for (torch::Tensor& parameter : module->parameters()) torch::nn::init::zeros_(parameter);
  };
  return model;
}

}  // namespace yoke::models
