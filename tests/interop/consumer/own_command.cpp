#include <yoke/command.h>

int main(int argc, char** argv) {
  yoke::register_model("pair", [](const yoke::models::ModelOptions&) {
    return yoke::wrap(torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Linear(8, 2)), /*loss=*/{},
                      {.kind = yoke::SampleKind::kVector, .shape = {4}, .classes = 2});
  });
  return yoke::run_command(argc, argv);
}
