#include "yoke/engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
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

// What is summed over ranks, and after it the counts of the classes.
enum Sum { kLoss, kCorrect, kStopped, kCounted, kSkipped, kSums };

// Without the samples whose files are broken.
void leave_out_skipped(models::Tensors& outputs, torch::Tensor& target) {
  if (target.dim() != 1 || target.scalar_type() != torch::kInt64) return;
  const torch::Tensor rows = (target != data::kNotCounted).nonzero().squeeze(1);
  if (rows.size(0) == target.size(0)) return;
  for (torch::Tensor& output : outputs) output = output.index_select(0, rows);
  target = target.index_select(0, rows);
}

// Evaluates the moving average of the weights, if there is one.
class WithAverage {
 public:
  explicit WithAverage(const Worker& worker) : strategy_(*worker.strategy) {
    const bool wanted = worker.options != nullptr && worker.options->optimizer.ema > 0;
    exchanged_ = wanted && strategy_.exchange_average();
  }
  void end() {
    if (std::exchange(exchanged_, false)) strategy_.exchange_average();
  }

 private:
  parallel::Strategy& strategy_;
  bool exchanged_ = false;
};

}  // namespace

std::optional<Evaluation> evaluate(const Worker& worker, const data::Dataset& dataset, int64_t batch_size,
                                   const std::function<bool()>& stop) {
  const models::Model& model = worker.model;
  parallel::Strategy& strategy = *worker.strategy;
  strategy.share_buffers();
  WithAverage average(worker);
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
  std::vector<double> own(kSums, 0.0);
  ClassCounts classes(model);
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
      torch::Tensor target = batch.target.to(worker.device);
      leave_out_skipped(outputs, target);
      const auto samples = batch.target.size(0) == target.size(0) ? static_cast<double>(indices.size())
                                                                  : static_cast<double>(target.size(0));
      own[kCounted] += samples;
      own[kSkipped] += static_cast<double>(indices.size()) - samples;
      if (samples > 0) own[kLoss] += model.loss(outputs, target).item<double>() * samples;
      if (model.correct) own[kCorrect] += static_cast<double>(model.correct(outputs, target).item<int64_t>());
      classes.add(outputs[0], target);
    }
    strategy.keep_alive();
    stopped = stop() && !share.together;
  }
  own[kStopped] = stopped ? 1 : 0;
  own.insert(own.end(), classes.sums().begin(), classes.sums().end());
  torch::Tensor sums = torch::tensor(own, torch::kFloat64);
  if (team != nullptr) {
    sums = sums.to(worker.device);
    comm::all_reduce(*team, sums, ReduceOp::kSum, "evaluation");
    sums = sums.cpu();
  }
  average.end();
  const double* all = sums.const_data_ptr<double>();
  if (all[kStopped] > 0) return std::nullopt;
  // Ranks that hold slices of one replica all have its outputs: a sample may count several times.
  const double copies = (all[kCounted] + all[kSkipped]) / static_cast<double>(dataset.size());
  YOKE_CHECK(std::fmod(copies, 1) == 0, "{} samples of {} were evaluated", all[kCounted], dataset.size());
  if (!(all[kCounted] > 0)) throw ConfigError("the evaluation has no sample: every file is broken.");
  Evaluation result{all[kLoss] / all[kCounted], std::nullopt,
                    static_cast<int64_t>(std::llround(all[kCounted] / copies)),
                    classes.scores(all + kSums, copies, dataset.class_names())};
  if (model.correct) result.accuracy = all[kCorrect] / all[kCounted];
  return result;
}

}  // namespace yoke::engine
