#include "yoke/engine/verify_trainee.h"

#include <algorithm>

#include "yoke/engine/run_state.h"

namespace yoke::engine {

using Tensors = std::vector<torch::Tensor>;

double relative_difference(const Tensors& ours, const Tensors& reference) {
  double worst = 0, scale = 1;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].defined() || !reference[i].defined()) continue;
    torch::Tensor b = reference[i].detach().to(torch::kFloat64);
    worst = std::max(worst, (ours[i].detach().to(torch::kFloat64) - b).abs().max().item<double>());
    scale = std::max(scale, b.abs().max().item<double>());
  }
  return worst / scale;
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const torch::Tensor& one : parameters) gradients.push_back(one.grad());
  return gradients;
}

Trainee::Trainee(const WorkerOptions& options)
    : worker(make_worker(options)), parameters(worker->model.module->parameters()) {}

void Trainee::start_from(const Tensors& weights) {
  torch::NoGradGuard no_grad;
  auto own = named_tensors(*worker->model.module);
  for (size_t i = 0; i < own.size(); ++i) {
    bool held = !worker->stage || worker->stage->tensors[i].held_by(worker->stage->place.stage);
    if (held) own[i].second.copy_(weights[i]);
  }
}

double Trainee::compute(const data::Dataset& dataset, std::span<const int64_t> indices, int64_t micro_batches,
                        double share) {
  worker->strategy->acquire();
  size_t each = indices.size() / static_cast<size_t>(micro_batches);
  torch::Tensor sum = torch::zeros({}, torch::kFloat64);
  for (int64_t i = 0; i < micro_batches; ++i) {
    data::Batch batch = dataset.gather(indices.subspan(static_cast<size_t>(i) * each, each));
    double weight = share / static_cast<double>(micro_batches);
    sum +=
        worker->strategy->compute(batch.inputs, batch.target, {weight, i + 1 == micro_batches}).loss * weight;
  }
  return worker->strategy->agree({sum, 0}).loss.item<double>();
}

}  // namespace yoke::engine
