#include "yoke/parallel/placement/slice/module_layers.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <optional>

#include "yoke/models/common/layers.h"
#include "yoke/models/gpt2/transformer.h"

namespace yoke::parallel {
namespace {

using Kind = plan::TensorLayer::Kind;

template <class... Types>
bool is_any(const torch::nn::Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

std::optional<Kind> kind_of(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  if (is_any<nn::LinearImpl, models::Linear, models::Projection>(module)) return Kind::kLinear;
  if (is_any<nn::Conv2dImpl, models::Conv2d>(module)) return Kind::kConv;
  if (is_any<nn::EmbeddingImpl, nn::EmbeddingBagImpl, models::Embedding>(module)) return Kind::kEmbedding;
  if (is_any<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl>(module)) return Kind::kBatchNorm;
  if (is_any<nn::LayerNormImpl, models::LayerNorm>(module)) return Kind::kLayerNorm;
  return std::nullopt;
}

int64_t groups_of(const torch::nn::Module& module) {
  if (auto* conv = dynamic_cast<const torch::nn::Conv2dImpl*>(&module)) return conv->options.groups();
  if (auto* conv = dynamic_cast<const models::Conv2d*>(&module)) return conv->options.groups;
  return 1;
}

LayerTensors describe(const std::string& path, const torch::nn::Module& module, Kind kind) {
  std::string prefix = path.empty() ? "" : path + ".";
  LayerTensors found;
  found.layer.name = path;
  found.layer.kind = kind;
  for (const auto& own : module.named_parameters(/*recurse=*/false)) {
    const torch::Tensor& tensor = own.value();
    if (own.key() == "bias") found.bias = prefix + "bias";
    if (own.key() != "weight" || tensor.dim() == 0) continue;
    found.weight = prefix + "weight";
    found.input_first = is_any<models::Projection>(module);
    bool embedding = kind == Kind::kEmbedding || found.input_first;
    found.layer.groups = groups_of(module);
    found.layer.out = tensor.size(tensor.dim() > 1 && embedding ? 1 : 0);
    found.layer.in = tensor.dim() == 1 ? tensor.size(0) : tensor.size(embedding ? 0 : 1) * found.layer.groups;
  }
  for (const auto& own : module.named_buffers(/*recurse=*/false)) {
    bool each_channel = own.value().dim() == 1 && own.value().size(0) == found.layer.out;
    if (each_channel) found.rest.push_back(prefix + own.key());
  }
  return found;
}

}  // namespace

std::vector<LayerTensors> layers_of(const torch::nn::Module& module) {
  std::vector<LayerTensors> layers;
  for (const auto& named : module.named_modules()) {
    std::optional<Kind> kind = kind_of(*named.value());
    if (kind) {
      LayerTensors layer = describe(named.key(), *named.value(), *kind);
      if (!layer.weight.empty()) layers.push_back(layer);
      continue;
    }
    // A matrix that a module of another kind owns goes by its own name.
    for (const auto& own : named.value()->named_parameters(/*recurse=*/false)) {
      if (own.value().dim() != 2) continue;
      std::string name = named.key().empty() ? own.key() : named.key() + "." + own.key();
      layers.push_back(
          {{name, Kind::kEmbedding, own.value().size(0), own.value().size(1)}, name, "", {}, false});
    }
  }
  return layers;
}

}  // namespace yoke::parallel
