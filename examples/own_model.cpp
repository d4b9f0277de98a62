// Your own model and data under the whole command line of yoke:
//   build/example_own_model train examples/own_model.toml --nproc 2
//   build/example_own_model verify examples/own_model.toml --layouts "data=2; pipeline=2; tensor=2;
//   data=2,zero=3"
#include <yoke/command.h>

namespace {

const yoke::SampleSpec kPoint{.kind = yoke::SampleKind::kVector, .shape = {2}, .classes = 3};

// Points in the plane go in, one of three classes comes out. Each layer is a block: a pipeline cuts between
// them, and parallel.tensor cuts the first two.
yoke::models::Model make_net(const yoke::models::ModelOptions& options) {
  const int64_t width = options.width == 0 ? 64 : options.width;
  torch::nn::Sequential layers(torch::nn::Linear(2, width), torch::nn::Tanh(),
                               torch::nn::Linear(width, width), torch::nn::Tanh(),
                               torch::nn::Linear(width, 3));
  yoke::models::Model model = yoke::wrap(layers, /*loss=*/{}, kPoint);  // cross entropy
  model.tensor_plan = R"("0" = "columns"
                         "2" = "rows")";
  return model;
}

// Three arms of a spiral.
std::unique_ptr<yoke::data::Dataset> open_spirals(const yoke::data::DataOptions& options,
                                                  yoke::data::Split split, const yoke::SampleSpec&,
                                                  uint64_t seed) {
  const bool training = split == yoke::data::Split::kTrain;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed + (training ? 0 : 1));
  const int64_t count = training ? options.samples : options.samples / 4;
  torch::Tensor arm = torch::arange(count) % 3;
  torch::Tensor radius = torch::rand({count}, generator);
  torch::Tensor angle = 2 * M_PI * (arm / 3.0 + radius) + 0.1 * torch::randn({count}, generator);
  torch::Tensor points = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return yoke::data::of_tensors(points, arm, kPoint);
}

}  // namespace

int main(int argc, char** argv) {
  yoke::register_model("spiral_net", make_net, {"width"});
  yoke::register_data("spirals", open_spirals);
  return yoke::run_command(argc, argv);
}
