#include "yoke/models/s2vt/s2vt.h"

#include <torch/nn/modules/rnn.h>

#include "yoke/compute/layers.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/task.h"

namespace yoke::models {
namespace {

using Lstm = std::shared_ptr<torch::nn::LSTMImpl>;

struct Sizes {
  int64_t width;
  int64_t vocabulary;
  int64_t frames;
  int64_t features;
  int64_t words;
};

Sizes resolve(const ModelOptions& options) {
  return {.width = size_or("width", options.width, 512),
          .vocabulary = size_or("vocabulary", options.vocabulary, 3000, /*least=*/2),
          .frames = size_or("frames", options.frames, 16),
          .features = size_or("features", options.features, 1024),
          .words = size_or("words", options.words, 12)};
}

// Zeros of x's batch, width and type, over `steps` steps.
torch::Tensor silence(const torch::Tensor& x, int64_t steps) {
  return x.new_zeros({x.size(0), steps, x.size(2)});
}

Lstm add_lstm(torch::nn::Module& root, const std::string& name, int64_t in, int64_t width) {
  return add<torch::nn::LSTMImpl>(root, name, torch::nn::LSTMOptions(in, width).batch_first(true));
}

// frames, words -> embedded frames [B, F, W], embedded words [B, N, W]
void add_embeddings(Model& model, const Sizes& sizes) {
  auto frames = add<Linear>(*model.module, "frame_embed", sizes.features, sizes.width);
  auto words = add<Embedding>(*model.module, "word_embed", sizes.vocabulary, sizes.width);
  auto forward = [frames, words](const Tensors& inputs) -> Tensors {
    return {frames->forward(inputs[0]), words->forward(inputs[1])};
  };
  model.blocks.push_back({"embed", forward, {frames, words}});
  auto embed_frames = [frames](const Tensors& inputs) -> Tensors { return {frames->forward(inputs.at(0))}; };
  auto embed_words = [words](const Tensors& inputs) -> Tensors { return {words->forward(inputs.at(0))}; };
  model.nodes.push_back({"frame_embed", embed_frames, {frames}, {"input"}});
  model.nodes.push_back({"word_embed", embed_words, {words}, {"input.1"}});
}

// -> states [B, F + N, W], embedded words
void add_lstm1(Model& model, const Sizes& sizes) {
  Lstm lstm = add_lstm(*model.module, "lstm1", sizes.width, sizes.width);
  // Of the words only their number matters.
  auto states = [lstm](const Tensors& inputs) -> Tensors {
    torch::Tensor steps = at::cat({inputs.at(0), silence(inputs[0], inputs.at(1).size(1))}, /*dim=*/1);
    return {std::get<0>(lstm->forward(steps))};
  };
  auto forward = [states](const Tensors& inputs) -> Tensors { return {states(inputs)[0], inputs[1]}; };
  model.blocks.push_back({"lstm1", forward, {lstm}});
  model.nodes.push_back({"lstm1", states, {lstm}, {"frame_embed", "input.1"}});
}

// -> states while speaking [B, N, W]
void add_lstm2(Model& model, const Sizes& sizes) {
  Lstm lstm = add_lstm(*model.module, "lstm2", 2 * sizes.width, sizes.width);
  auto forward = [lstm](const Tensors& inputs) -> Tensors {
    int64_t words = inputs[1].size(1);
    int64_t frames = inputs[0].size(1) - words;
    // Autocast may have left the LSTM's output in another type than the embedding.
    torch::Tensor spoken = inputs[1].to(inputs[0].scalar_type());
    torch::Tensor heard = at::cat({silence(spoken, frames), spoken}, /*dim=*/1);
    torch::Tensor states = std::get<0>(lstm->forward(at::cat({inputs[0], heard}, /*dim=*/2)));
    return {states.narrow(1, frames, words)};
  };
  model.blocks.push_back({"lstm2", forward, {lstm}});
  model.nodes.push_back({"lstm2", forward, {lstm}, {"lstm1", "word_embed"}});
}

void add_output(Model& model, const Sizes& sizes) {
  auto output = add<Linear>(*model.module, "output", sizes.width, sizes.vocabulary);
  auto forward = [output](const Tensors& inputs) -> Tensors { return {output->forward(inputs[0])}; };
  model.blocks.push_back({"output", forward, {output}});
  model.nodes.push_back({"output", forward, {output}, {"lstm2"}});
}

int64_t multiply_adds(const Sizes& s) {
  int64_t steps = s.frames + s.words;
  int64_t lstm1 = steps * 4 * s.width * (s.width + s.width);
  int64_t lstm2 = steps * 4 * s.width * (2 * s.width + s.width);
  return s.frames * s.features * s.width + lstm1 + lstm2 + s.words * s.width * s.vocabulary;
}

}  // namespace

Model make_s2vt(const ModelOptions& options) {
  Sizes sizes = resolve(options);
  Model model = start_model("s2vt", {.kind = SampleKind::kVideo,
                                     .shape = {sizes.frames, sizes.features, sizes.words},
                                     .classes = sizes.vocabulary});
  add_embeddings(model, sizes);
  add_lstm1(model, sizes);
  add_lstm2(model, sizes);
  add_output(model, sizes);

  model.loss = [](const Tensors& outputs, const torch::Tensor& target) {
    return mean_cross_entropy(outputs[0], target);
  };
  model.step_flops_per_sample = training_flops(multiply_adds(sizes));
  model.initialise = [module = model.module] {
    draw_default(*module);
    for_each<torch::nn::LSTMImpl>(*module, [](auto& lstm) { lstm.reset_parameters(); });
  };
  return model;
}

}  // namespace yoke::models
