#include "yoke/models/wrap.h"

#include "yoke/base/error.h"
#include "yoke/models/common/task.h"
#include "yoke/models/graph.h"

namespace yoke::models {

Block block(std::string name, std::function<torch::Tensor(const torch::Tensor&)> forward,
            std::vector<std::shared_ptr<torch::nn::Module>> modules) {
  return {std::move(name),
          [forward = std::move(forward)](const Tensors& inputs) { return Tensors{forward(inputs.at(0))}; },
          std::move(modules)};
}

Model wrap(std::shared_ptr<torch::nn::Module> module, std::vector<Block> blocks, Loss loss,
           SampleSpec sample) {
  Model model;
  model.name = module->name();
  model.module = std::move(module);
  model.blocks = std::move(blocks);
  model.sample = std::move(sample);
  model.initialise = [] {};  // initialised at construction
  set_classification(model);
  if (loss) {
    model.loss = std::move(loss);
    model.correct = nullptr;
  }
  return model;
}

Block node(std::string name, std::vector<std::string> inputs,
           std::function<torch::Tensor(const Tensors&)> forward,
           std::vector<std::shared_ptr<torch::nn::Module>> modules) {
  return {std::move(name),
          [forward = std::move(forward)](const Tensors& given) { return Tensors{forward(given)}; },
          std::move(modules), std::move(inputs)};
}

Model wrap_graph(std::shared_ptr<torch::nn::Module> module, std::vector<Block> nodes,
                 std::vector<std::string> outputs, Loss loss, SampleSpec sample) {
  Model model = wrap(std::move(module), {}, std::move(loss), std::move(sample));
  model.nodes = std::move(nodes);
  model.outputs = std::move(outputs);
  if (model.nodes.empty()) throw ConfigError("model '{}': no nodes.", model.name);
  model.blocks = chain_of(graph_of(model));
  return model;
}

Model wrap(torch::nn::Sequential layers, Loss loss, SampleSpec sample) {
  std::vector<Block> blocks;
  int64_t index = 0;
  for (torch::nn::AnyModule& layer : *layers)
    blocks.push_back(block(
        std::to_string(index++),
        [layer](const torch::Tensor& x) mutable { return layer.forward<torch::Tensor>(x); }, {layer.ptr()}));
  return wrap(layers.ptr(), std::move(blocks), std::move(loss), std::move(sample));
}

}  // namespace yoke::models
