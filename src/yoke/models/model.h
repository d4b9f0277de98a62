// A model for one device: an ordered list of named blocks, and where it is no chain, a graph of named nodes.
//
// Parallelism is applied from outside, between or around blocks. Parameter and buffer names are those of
// torchvision and Hugging Face, so that weights can be exchanged through safetensors.
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

// One step of the forward pass. In a chain the outputs of a block are the inputs of the next; a node of a
// graph names what it reads.
struct Block {
  std::string name;
  std::function<Tensors(const Tensors&)> forward;
  // The modules it uses, for counting parameters and assigning them to stages. A module may be part of two
  // blocks (GPT-2's tied embedding).
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  // Nodes of a graph only: the nodes whose outputs it takes, one after the other. "input" and "input.1" are
  // the first and the second tensor of a batch.
  std::vector<std::string> inputs = {};
};

struct Model {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // owns every parameter and buffer
  std::vector<Block> blocks;
  SampleSpec sample;  // shape of its input
  // The same computation as a graph (models/graph.h), which parallel.partition distributes, and the nodes
  // whose outputs the loss takes, in its order. Empty: the chain of blocks, and its last one.
  std::vector<Block> nodes;
  std::vector<std::string> outputs;

  // Mean loss over the batch; a scalar. `outputs` are the last block's.
  std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)> loss;
  // Number of correct answers as an int64 scalar tensor, for models that have such a notion; else nullptr.
  std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)> correct;
  // Initialises the weights from the global generator, with the distributions of torchvision and Hugging
  // Face.
  std::function<void()> initialise;
  // Floating-point operations of one training step (forward and backward) on one sample, 2 per
  // multiply-add, matrix products and convolutions only; for TFLOP/s.
  double step_flops_per_sample = 0;
  int64_t heads = 0;  // of its attention layers; 0: none
  // Layers split by parallel.tensor, in the file format of plan/tensor; empty: a preset
  std::string tensor_plan;

  // Runs all blocks in order.
  Tensors forward(const Tensors& inputs) const;
  // Number of distinct parameter elements (tied ones count once).
  int64_t parameter_count() const;
};

// Builds the named model, in training mode, with initialised weights. Throws ConfigError for invalid sizes
// and for keys that are set but not used by the model.
Model build(const ModelOptions& options);

// Like build() with uninitialised parameters: for callers that load them, or only need names and sizes. Takes
// milliseconds even for large models.
Model lay_out(const ModelOptions& options);

// Registers a model of the program: model.name = `name` builds it with `make`. `keys`: the keys of [model] it
// uses; others are refused. Call it before a configuration is read. Throws ConfigError for a name that is
// taken and for unknown keys.
void register_model(const std::string& name, std::function<Model(const ModelOptions&)> make,
                    std::vector<std::string> keys = {});

}  // namespace yoke::models
