#include "yoke/engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "yoke/base/error.h"
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
                                   const std::function<bool()>& stop) {
  const models::Model& model = worker.model;
  parallel::Strategy& strategy = *worker.strategy;
  strategy.share_buffers();
  EvaluationMode mode(*model.module);
  torch::NoGradGuard no_grad;
  AutocastGuard autocast(worker.device.type(), worker.autocast);
  comm::Communicator* team = strategy.team();
  parallel::DataShare share = team != nullptr ? strategy.share() : parallel::DataShare();
  if (strategy.progress()) {  // at its own pace: by this replica alone
    share.part = 0;
    share.parts = 1;
  }
  int64_t last = dataset.size() * (share.part + 1) / share.parts;
  double loss = 0;
  int64_t correct = 0, counted = 0;
  bool stopped = false;
  std::vector<int64_t> indices;
  const int64_t first = dataset.size() * share.part / share.parts;
  // Ranks that run passes together need equally many; surplus passes do not count.
  const int64_t most = share.together ? (dataset.size() + share.parts - 1) / share.parts : last - first;
  for (int64_t begin = first; begin - first < most && !stopped; begin += batch_size) {
    const bool counts = begin < last;
    if (counts) {
      indices.resize(static_cast<size_t>(std::min(batch_size, last - begin)));
      std::iota(indices.begin(), indices.end(), begin);
    } else if (indices.empty()) {
      indices = {0};
    }
    data::Batch batch = dataset.gather(indices);
    models::Tensors outputs = strategy.forward(batch.inputs);
    // Other ranks have the outputs. This one continues to the end, because they wait for what it sends.
    if (!outputs.empty() && counts) {
      counted += static_cast<int64_t>(indices.size());
      torch::Tensor target = batch.target.to(worker.device);
      loss += model.loss(outputs, target).item<double>() * static_cast<double>(indices.size());
      if (model.correct) correct += model.correct(outputs, target).item<int64_t>();
    }
    strategy.keep_alive();
    stopped = stop() && !share.together;
  }
  torch::Tensor sums =
      torch::tensor({loss, static_cast<double>(correct), stopped ? 1.0 : 0.0, static_cast<double>(counted)},
                    torch::kFloat64);
  if (team != nullptr) {
    sums = sums.to(worker.device);
    comm::all_reduce(*team, sums, ReduceOp::kSum, "evaluation");
    sums = sums.cpu();
  }
  const double* all = sums.const_data_ptr<double>();
  if (all[2] > 0) return std::nullopt;
  // Ranks that hold slices of one replica all have its outputs: a sample may count several times.
  const double samples = all[3];
  YOKE_CHECK(std::fmod(samples, static_cast<double>(dataset.size())) == 0, "{} samples of {} were evaluated",
             samples, dataset.size());
  Evaluation result{all[0] / samples, std::nullopt, dataset.size()};
  if (model.correct) result.accuracy = all[1] / samples;
  return result;
}

}  // namespace yoke::engine
