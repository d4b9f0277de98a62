// Replicas in one process, on threads of the CPU or on several GPUs: `parallel.sync = "threads"`.
//
// A batch is divided among the replicas, their gradients are summed in the first one, which the optimizer
// updates. BatchNorm keeps the first one's statistics.
#pragma once

#include <vector>

#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/schedule/threads/data_parallel.h"

namespace yoke::parallel {

class ThreadsStrategy : public Strategy {
 public:
  // `model` is the first replica, `followers` the others, each on its device; all arguments but `followers`
  // must outlive the strategy.
  ThreadsStrategy(const models::Model& model, std::vector<models::Model> followers,
                  optim::Optimizer& optimizer, optim::GradScaler& scaler, OneDeviceOptions options);

  void acquire() override { first_.acquire(); }
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override { return first_.commit(options); }
  std::vector<StatePiece> gradients() override { return first_.gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return first_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override { return first_.loss_scale(); }
  DataShare share() const override { return {.batches = static_cast<int64_t>(models_.size())}; }
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return first_.forward(inputs);
  }
  bool exchange_average() override { return first_.exchange_average(); }
  std::vector<StatePiece> state() override { return first_.state(); }

 private:
  Nested loss_of_replica(size_t replica, const Nested& part) const;

  optim::GradScaler& scaler_;
  OneDeviceOptions options_;
  std::vector<models::Model> models_;
  std::vector<std::vector<RecomputeFunction>> blocks_;  // of each replica
  std::vector<torch::Tensor> batch_counters_;
  int64_t rows_ = 0;  // of the whole batch
  OneDevice first_;
  DataParallel parallel_;
};

}  // namespace yoke::parallel
