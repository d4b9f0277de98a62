#include "yoke/models/s2vt/s2vt.h"

#include <gtest/gtest.h>

#include "yoke/models/test_batch.h"
#include "yoke/models/test_finite_difference.h"

namespace yoke::models {
namespace {

const ModelOptions kTiny{.name = "s2vt", .width = 4, .vocabulary = 9, .frames = 3, .features = 5, .words = 2};

struct Cell {
  torch::Tensor weight_ih, weight_hh, bias_ih, bias_hh;
  std::vector<torch::Tensor> state;

  torch::Tensor step(const torch::Tensor& x) {
    auto [h, c] = at::lstm_cell(x, state, weight_ih, weight_hh, bias_ih, bias_hh);
    state = {h, c};
    return h;
  }
};

Cell cell_of(const Model& model, const std::string& name) {
  auto p = model.module->named_parameters();
  torch::Tensor zeros = torch::zeros({2, 4}, torch::kDouble);
  return {p[name + ".weight_ih_l0"],
          p[name + ".weight_hh_l0"],
          p[name + ".bias_ih_l0"],
          p[name + ".bias_hh_l0"],
          {zeros, zeros}};
}

Model make_double() {
  torch::manual_seed(4);
  Model model = build(kTiny);
  model.module->to(torch::kDouble);
  return model;
}

// The paper's figure 2, one step of time after another.
TEST(S2vt, WatchesThenSpeaks) {
  Model model = make_double();
  TestBatch batch = converted(make_test_batch(model.sample, 2), torch::kDouble);
  auto p = model.module->named_parameters();
  Cell lstm1 = cell_of(model, "lstm1");
  Cell lstm2 = cell_of(model, "lstm2");
  torch::Tensor pad = torch::zeros({2, 4}, torch::kDouble);
  for (int64_t i = 0; i < 3; ++i) {
    torch::Tensor frame =
        at::linear(batch.inputs[0].select(1, i), p["frame_embed.weight"], p["frame_embed.bias"]);
    lstm2.step(at::cat({lstm1.step(frame), pad}, 1));
  }
  Tensors spoken;
  for (int64_t i = 0; i < 2; ++i) {
    torch::Tensor word = at::embedding(p["word_embed.weight"], batch.inputs[1].select(1, i));
    torch::Tensor state = lstm2.step(at::cat({lstm1.step(pad), word}, 1));
    spoken.push_back(at::linear(state, p["output.weight"], p["output.bias"]));
  }
  EXPECT_TRUE(torch::allclose(model.forward(batch.inputs)[0], at::stack(spoken, 1), 1e-10, 1e-12));
}

TEST(S2vt, HasTheGradientsOfItsLoss) {
  Model model = make_double();
  expect_gradients_match_differences(model, converted(make_test_batch(model.sample, 2), torch::kDouble));
}

}  // namespace
}  // namespace yoke::models
