#include "yoke/engine/evaluate.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace yoke::engine {
namespace {

class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace

std::optional<Evaluation> evaluate(const Worker& worker, const data::Dataset& dataset, int64_t batch_size,
                                   const std::function<bool()>& stop) {
  const models::Model& model = worker.model;
  EvaluationMode mode(*model.module);
  torch::NoGradGuard no_grad;
  AutocastGuard autocast(worker.device.type(), worker.autocast);
  double loss = 0;
  int64_t correct = 0;
  std::vector<int64_t> indices;
  for (int64_t begin = 0; begin < dataset.size(); begin += batch_size) {
    if (stop()) return std::nullopt;
    indices.resize(static_cast<size_t>(std::min(batch_size, dataset.size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    data::Batch batch = dataset.gather(indices);
    for (torch::Tensor& input : batch.inputs) input = worker.place(input);
    torch::Tensor target = batch.target.to(worker.device);
    models::Tensors outputs = model.forward(batch.inputs);
    loss += model.loss(outputs, target).item<double>() * static_cast<double>(indices.size());
    if (model.correct) correct += model.correct(outputs, target).item<int64_t>();
  }
  auto samples = static_cast<double>(dataset.size());
  Evaluation result{loss / samples, std::nullopt, dataset.size()};
  if (model.correct) result.accuracy = static_cast<double>(correct) / samples;
  return result;
}

}  // namespace yoke::engine
