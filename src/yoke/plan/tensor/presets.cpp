#include "yoke/base/error.h"
#include "yoke/plan/tensor/layer_cuts.h"

namespace yoke::plan {
namespace {

using Kind = TensorLayer::Kind;

TensorPlan gpt2(int64_t heads) {
  return {{{"wte", {.cut = TensorCut::kVocabulary}},
           {"h.*.attn.c_attn", {.cut = TensorCut::kColumns, .heads = true}},
           {"h.*.attn.c_proj", {.cut = TensorCut::kRows}},
           {"h.*.mlp.c_fc", {.cut = TensorCut::kColumns}},
           {"h.*.mlp.c_proj", {.cut = TensorCut::kRows}}},
          heads};
}

// The two convolutions with most of the work; the shortcut is replicated.
TensorPlan resnet(const std::string& first, const std::string& second) {
  return {{{"layer*.*." + first, {.cut = TensorCut::kChannelsOut}},
           {"layer*.*." + second, {.cut = TensorCut::kChannelsIn}}}};
}

}  // namespace

TensorPlan pair_up(const std::vector<TensorLayer>& layers) {
  TensorPlan plan;
  const TensorLayer* first = nullptr;
  for (const TensorLayer& layer : layers) {
    bool conv = layer.kind == Kind::kConv;
    if (!conv && layer.kind != Kind::kLinear) continue;
    if (first == nullptr) {
      first = &layer;
      continue;
    }
    bool first_conv = first->kind == Kind::kConv;
    plan.rules.push_back({first->name, {.cut = first_conv ? TensorCut::kChannelsOut : TensorCut::kColumns}});
    plan.rules.push_back({layer.name, {.cut = conv ? TensorCut::kChannelsIn : TensorCut::kRows}});
    first = nullptr;
  }
  return plan;
}

TensorPlan tensor_preset(const std::string& model, const std::vector<TensorLayer>& layers, int64_t heads) {
  if (model == "gpt2") return gpt2(heads);
  if (model == "alexnet_original") return alexnet_of_two();
  for (const char* deep : {"resnet50", "resnet101", "resnet152"})
    if (model == deep) return resnet("conv2", "conv3");
  for (const char* shallow : {"resnet18", "resnet34"})
    if (model == shallow) return resnet("conv1", "conv2");
  if (model == "sparse_lr") return {{{"weight", {.cut = TensorCut::kVocabulary}}}};
  for (const char* chain : {"mlp", "lenet", "alexnet", "vgg11", "vgg16", "vgg_small"}) {
    if (model == chain) return pair_up(layers);
  }
  throw ConfigError(
      "parallel.tensor: model {} has no tensor plan of its own (gpt2, mlp, lenet, alexnet, vgg11, vgg16, "
      "vgg_small, the ResNets and sparse_lr have). Hint: write one and name it in parallel.tensor_plan.",
      model);
}

TensorPlan alexnet_of_two() {
  TensorHow grouped{.cut = TensorCut::kChannelsGrouped};
  TensorHow all_features{.cut = TensorCut::kColumns, .gathered = true};
  return {{{"features.0", {.cut = TensorCut::kChannelsOut}},
           {"features.3", grouped},
           {"features.6", {.cut = TensorCut::kChannelsOut, .gathered = true}},
           {"features.8", grouped},
           {"features.10", grouped},
           {"classifier.1", all_features},
           {"classifier.4", all_features},
           {"classifier.6", {.cut = TensorCut::kRows}}}};
}

}  // namespace yoke::plan
