#include <yoke/yoke.h>

#include <cstdio>

int main() {
  torch::manual_seed(1);
  auto model = yoke::models::build({.name = "mlp", .sizes = {4, 8, 2}});
  auto optimizer = yoke::optim::make({.optimizer = "sgd", .lr = 0.1}, {{"w", model.module->parameters()[0]}});
  auto outputs = yoke::recompute([&](const std::vector<torch::Tensor>& x) { return model.forward(x); },
                                 {torch::randn({3, 4})});
  yoke::GradScaler scaler;
  scaler.scale(model.loss(outputs, torch::zeros({3}, torch::kLong))).backward();
  if (!scaler.unscale(model.module->parameters())) return 1;
  optimizer->step(0.1);
  std::printf("consumer: %lld parameters\n", static_cast<long long>(model.parameter_count()));
}
