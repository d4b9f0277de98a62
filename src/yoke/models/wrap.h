// Turns any module into a model: its forward pass as blocks, which strategies place, split and schedule.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "yoke/models/model.h"

namespace yoke::models {

// A block of one module that takes and returns one tensor, such as torch::nn::Linear.
template <class Contained>
Block block(std::string name, torch::nn::ModuleHolder<Contained> module) {
  std::shared_ptr<Contained> inner = module.ptr();
  return {std::move(name),
          [inner](const Tensors& inputs) { return Tensors{inner->forward(inputs.at(0))}; },
          {inner}};
}

// A block of a function over modules; `modules`: those whose parameters it uses.
Block block(std::string name, std::function<torch::Tensor(const torch::Tensor&)> forward,
            std::vector<std::shared_ptr<torch::nn::Module>> modules = {});

using Loss = std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)>;

// A model of a module that owns all parameters of `blocks`, which run in order, with a mean loss over the
// batch. `sample`: shape of a sample, for data sets and commands; your own loop does not need it. Without a
// loss: cross entropy of the first output, and correct answers are counted.
Model wrap(std::shared_ptr<torch::nn::Module> module, std::vector<Block> blocks, Loss loss = {},
           SampleSpec sample = {});

// A node of a graph: `forward` takes the outputs of the nodes that `inputs` name, in this order ("input": the
// batch). It must not change them.
Block node(std::string name, std::vector<std::string> inputs,
           std::function<torch::Tensor(const Tensors&)> forward,
           std::vector<std::shared_ptr<torch::nn::Module>> modules = {});

// A node of one module that takes a tensor.
template <class Contained>
Block node(std::string name, std::string input, torch::nn::ModuleHolder<Contained> module) {
  Block made = block(std::move(name), std::move(module));
  made.inputs = {std::move(input)};
  return made;
}

// A model that is no chain, of named nodes in any order. `outputs` names those that the loss takes; empty:
// the one that no other reads. parallel.partition distributes the nodes; other strategies run them in a row.
// Throws ConfigError that names the node: an input that does not exist, a cycle, an output that nobody reads.
Model wrap_graph(std::shared_ptr<torch::nn::Module> module, std::vector<Block> nodes,
                 std::vector<std::string> outputs = {}, Loss loss = {}, SampleSpec sample = {});

// The same for a sequence of layers: one block each.
Model wrap(torch::nn::Sequential layers, Loss loss = {}, SampleSpec sample = {});

}  // namespace yoke::models
