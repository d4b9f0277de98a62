#include "yoke/models/gpt2/gpt2.h"

#include <torch/nn/init.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/compute/fused_loss.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/label_smoothing.h"
#include "yoke/compute/language_loss.h"
#include "yoke/compute/vocabulary_head.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/task.h"
#include "yoke/models/gpt2/transformer.h"

namespace yoke::models {
namespace {

struct Sizes {
  const char* name;
  int64_t layers;
  int64_t heads;
  int64_t width;
  int64_t vocabulary = 50257;
  int64_t positions = 1024;
};
constexpr Sizes kPublished[] = {
    {"124m", 12, 12, 768}, {"355m", 24, 16, 1024}, {"774m", 36, 20, 1280}, {"1558m", 48, 25, 1600}};

Sizes published(const ModelOptions& options) {
  if (options.size.empty()) return kPublished[0];
  if (options.layers != 0 || options.heads != 0 || options.width != 0) {
    throw ConfigError(
        "model.size = \"{}\" already sets layers, heads and width. Hint: remove one or the other.",
        options.size);
  }
  for (const Sizes& sizes : kPublished) {
    if (options.size == sizes.name) return sizes;
  }
  throw ConfigError("model.size = \"{}\": gpt2 has 124m, 355m, 774m and 1558m", options.size);
}

Sizes resolve(const ModelOptions& options) {
  Sizes sizes = published(options);
  sizes.layers = size_or("layers", options.layers, sizes.layers);
  sizes.heads = size_or("heads", options.heads, sizes.heads);
  sizes.width = size_or("width", options.width, sizes.width);
  sizes.vocabulary = size_or("vocabulary", options.vocabulary, sizes.vocabulary);
  sizes.positions = size_or("positions", options.positions, sizes.positions);
  if (sizes.width % sizes.heads != 0) {
    throw ConfigError(
        "model.width = {} is not a multiple of model.heads = {}. Hint: the usual head size is 64.",
        sizes.width, sizes.heads);
  }
  return sizes;
}

void add_embedding(Model& model, const std::shared_ptr<Embedding>& tokens,
                   const std::shared_ptr<Embedding>& positions, double dropout) {
  auto forward = [tokens, positions, dropout](const Tensors& inputs) -> Tensors {
    int64_t length = inputs[0].size(1);
    YOKE_CHECK(length <= positions->weight.size(0), "a sample has {} tokens, but the model has {} positions",
               length, positions->weight.size(0));
    compute::SequencePart part = compute::sequence_part(length);
    torch::Tensor x = tokens->forward(inputs[0]) + positions->weight.narrow(0, part.begin, part.length);
    return {at::dropout(x, dropout, tokens->is_training())};
  };
  model.blocks.push_back({"embedding", forward, {tokens, positions}});
}

void add_layer(Model& model, const std::string& path, const std::shared_ptr<Layer>& layer) {
  auto forward = [layer](const Tensors& inputs) -> Tensors { return {layer->forward(inputs[0])}; };
  model.blocks.push_back({path, forward, {layer}});
}

void add_head(Model& model, const std::shared_ptr<LayerNorm>& norm,
              const std::shared_ptr<Embedding>& tokens) {
  auto forward = [norm, tokens](const Tensors& inputs) -> Tensors {
    torch::Tensor x = norm->forward(inputs[0]);
    torch::Tensor logits = compute::vocabulary_logits(x, tokens->weight);
    return {tokens->is_training() ? logits : compute::without_padding(logits, tokens->weight.size(0))};
  };
  model.blocks.push_back({"head", forward, {norm, tokens}});
}

// N(0, 0.02), the projections into the residual stream narrower by sqrt(2 layers), as GPT-2's paper says.
void draw(torch::nn::Module& module, int64_t layers) {
  using namespace torch::nn::init;
  constexpr double kStd = 0.02;
  for_each<Embedding>(module, [](Embedding& embedding) { normal_(embedding.weight, 0, kStd); });
  for (const auto& named : module.named_modules()) {
    if (auto* norm = dynamic_cast<LayerNorm*>(named.value().get())) {
      ones_(norm->weight);
      zeros_(norm->bias);
    }
    if (auto* projection = dynamic_cast<Projection*>(named.value().get())) {
      double narrowing = named.key().ends_with("c_proj") ? std::sqrt(2.0 * static_cast<double>(layers)) : 1.0;
      normal_(projection->weight, 0, kStd / narrowing);
      zeros_(projection->bias);
    }
  }
}

// Of one sample of full length: 12 width^2 weights a layer, the head, and the two products of attention,
// counted without the causal half, as is usual.
int64_t multiply_adds(const Sizes& s) {
  int64_t per_token =
      s.layers * (12 * s.width * s.width + 2 * s.positions * s.width) + s.width * s.vocabulary;
  return s.positions * per_token;
}

}  // namespace

Model make_gpt2(const ModelOptions& options) {
  Sizes sizes = resolve(options);
  double dropout = dropout_or(options, 0.0);
  Model model = start_model(
      "gpt2", {.kind = SampleKind::kTokens, .shape = {sizes.positions}, .classes = sizes.vocabulary});

  model.heads = sizes.heads;
  auto tokens = add<Embedding>(*model.module, "wte", sizes.vocabulary, sizes.width);
  auto positions = add<Embedding>(*model.module, "wpe", sizes.positions, sizes.width);
  add_embedding(model, tokens, positions, dropout);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    std::string path = "h." + std::to_string(i);
    add_layer(model, path, add<Layer>(*model.module, path, sizes.width, sizes.heads, dropout));
  }
  add_head(model, add<LayerNorm>(*model.module, "ln_f", sizes.width), tokens);

  model.loss = [vocabulary = sizes.vocabulary](const Tensors& outputs, const torch::Tensor& target) {
    const torch::Tensor& logits = outputs[0];
    if (compute::label_smoothing() == 0 && compute::can_fuse_loss(logits))
      return compute::consume_language_loss(logits, target, vocabulary);
    const bool padded = logits.size(-1) > vocabulary && compute::label_smoothing() > 0;
    return mean_cross_entropy(padded ? compute::without_padding(logits, vocabulary) : logits, target);
  };
  model.step_flops_per_sample = training_flops(multiply_adds(sizes));
  model.initialise = [module = model.module, layers = sizes.layers] { draw(*module, layers); };
  return model;
}

}  // namespace yoke::models
