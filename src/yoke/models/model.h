// A model for one device: an ordered list of named blocks.
//
// Parallelism is applied from outside, between or around blocks. Parameter and buffer names are those of
// torchvision and Hugging Face, so that weights move both ways through safetensors.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/sample_spec.h"
#include "yoke/models/options.h"

namespace yoke::models {

using Tensors = std::vector<torch::Tensor>;

// One step of the forward pass. The outputs of a block are the inputs of the next.
struct Block {
  std::string name;
  std::function<Tensors(const Tensors&)> forward;
  // The modules it uses, for counting parameters and assigning them to stages. A module may stand in two
  // blocks (GPT-2's tied embedding).
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
};

struct Model {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // owns every parameter and buffer
  std::vector<Block> blocks;
  SampleSpec sample;  // what it eats

  // Mean loss over the batch; a scalar. `outputs` are the last block's.
  std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)> loss;
  // Number of right answers as an int64 scalar tensor, for the models that have such a thing; else null.
  std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)> correct;
  // Draws fresh weights from the global generator, with the distributions of torchvision and Hugging Face.
  std::function<void()> initialise;
  // Floating-point operations of one training step (forward and backward) on one sample, 2 per
  // multiply-add, matrix products and convolutions only; for TFLOP/s.
  double step_flops_per_sample = 0;

  // Runs all blocks in order.
  Tensors forward(const Tensors& inputs) const;
  // Number of distinct parameter elements (tied ones count once).
  int64_t parameter_count() const;
};

// Builds the named model, in training mode, with weights drawn from the global generator. Throws ConfigError
// for sizes the model cannot have and for keys that are set and mean nothing to it.
Model build(const ModelOptions& options);

// The same with parameters left unset: for who loads them at once, or only wants to know names and sizes.
// Takes milliseconds also for the big models.
Model lay_out(const ModelOptions& options);

}  // namespace yoke::models
