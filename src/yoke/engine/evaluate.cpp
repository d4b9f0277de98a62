#include "yoke/engine/evaluate.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "yoke/comm/tensors/tensors.h"

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
                                   const std::function<bool()>& stop, comm::Communicator* comm) {
  const models::Model& model = worker.model;
  if (worker.strategy) worker.strategy->share_buffers();
  EvaluationMode mode(*model.module);
  torch::NoGradGuard no_grad;
  AutocastGuard autocast(worker.device.type(), worker.autocast);
  int64_t rank = comm != nullptr ? comm->rank() : 0, ranks = comm != nullptr ? comm->size() : 1;
  if (worker.stage) {  // all stages of a copy see the same samples
    rank = worker.stage->place.copy;
    ranks = worker.stage->layout.copies;
  }
  int64_t last = dataset.size() * (rank + 1) / ranks;
  double loss = 0;
  int64_t correct = 0;
  bool stopped = false;
  std::vector<int64_t> indices;
  for (int64_t begin = dataset.size() * rank / ranks; begin < last && !stopped; begin += batch_size) {
    indices.resize(static_cast<size_t>(std::min(batch_size, last - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    data::Batch batch = dataset.gather(indices);
    bool takes_inputs = !worker.stage || worker.stage->place.stage == 0;
    for (torch::Tensor& input : batch.inputs)
      if (takes_inputs) input = worker.place(input);
    models::Tensors outputs =
        worker.pipeline != nullptr ? worker.pipeline->evaluate(batch.inputs) : model.forward(batch.inputs);
    // Stages but the last have none. They go on to the end: others wait for what they send.
    if (!outputs.empty()) {
      torch::Tensor target = batch.target.to(worker.device);
      loss += model.loss(outputs, target).item<double>() * static_cast<double>(indices.size());
      if (model.correct) correct += model.correct(outputs, target).item<int64_t>();
    }
    stopped = stop() && worker.pipeline == nullptr;
  }
  torch::Tensor sums =
      torch::tensor({loss, static_cast<double>(correct), stopped ? 1.0 : 0.0}, torch::kFloat64);
  if (comm != nullptr) {
    sums = sums.to(worker.device);
    comm::all_reduce(*comm, sums, ReduceOp::kSum, "evaluation");
    sums = sums.cpu();
  }
  const double* all = sums.const_data_ptr<double>();
  if (all[2] > 0) return std::nullopt;
  auto samples = static_cast<double>(dataset.size());
  Evaluation result{all[0] / samples, std::nullopt, dataset.size()};
  if (model.correct) result.accuracy = all[1] / samples;
  return result;
}

}  // namespace yoke::engine
