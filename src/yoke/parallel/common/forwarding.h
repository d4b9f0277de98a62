// A strategy that forwards every call to another one: a base for those that change a few of them.
#pragma once

#include <memory>
#include <utility>

#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

class Forwarding : public Strategy {
 public:
  // Owns `strategy`; derived classes override what they change and call `inner` for the rest.
  explicit Forwarding(std::unique_ptr<Strategy> strategy) : inner(std::move(strategy)) {}

  void acquire() override { inner->acquire(); }
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override {
    return inner->compute(inputs, target, micro);
  }
  StepNews agree(const StepNews& here) override { return inner->agree(here); }
  void settle() override { inner->settle(); }
  void share_buffers() override { inner->share_buffers(); }
  void drain() override { inner->drain(); }
  std::optional<Communication> communication() const override { return inner->communication(); }
  Traffic traffic() const override { return inner->traffic(); }
  std::optional<double> noise_scale() const override { return inner->noise_scale(); }
  CommitResult commit(const CommitOptions& options) override { return inner->commit(options); }
  std::vector<StatePiece> gradients() override { return inner->gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return inner->first_non_finite_gradient();
  }
  std::optional<Progress> progress() const override { return inner->progress(); }
  std::optional<double> loss_scale() const override { return inner->loss_scale(); }
  DataShare share() const override { return inner->share(); }
  comm::Communicator* team() const override { return inner->team(); }
  bool overlaps_steps() const override { return inner->overlaps_steps(); }
  double steps_per_batch() const override { return inner->steps_per_batch(); }
  RunStart locate(const RunStart& restored) override { return inner->locate(restored); }
  void begin(int64_t total_steps) override { inner->begin(total_steps); }
  bool rejoined() const override { return inner->rejoined(); }
  void keep_alive() override { inner->keep_alive(); }
  void failed(const std::exception& error) override { inner->failed(error); }
  RunEnd finish(int64_t peak_memory) override { return inner->finish(peak_memory); }
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return inner->forward(inputs);
  }
  bool exchange_average() override { return inner->exchange_average(); }
  nlohmann::json layout() const override { return inner->layout(); }
  std::vector<StatePiece> state() override { return inner->state(); }
  std::optional<int64_t> fetch_state() override { return inner->fetch_state(); }
  void restored(int64_t step) override { inner->restored(step); }
  std::unique_ptr<Replay> replay(const models::Model& model,
                                 const optim::OptimizerOptions& optimizer) const override {
    return inner->replay(model, optimizer);
  }

  std::unique_ptr<Strategy> inner;
};

}  // namespace yoke::parallel
