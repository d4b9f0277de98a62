// A worker of L-BFGS on parameter servers (Sandblaster, docs/design/parameter_server.md).
//
// Every worker reads the whole batch and computes portions of it, as many as it can; the servers hold
// parameters, gradient and history. A step's loss and gradient are evaluated in agree(), its iterations in
// commit(). Both begin when the first worker calls them: nothing moves while it evaluates or saves. A worker
// that is late skips what others have finished.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/sync/servers/setup.h"
#include "yoke/parallel/sync/servers/worker_delays.h"
#include "yoke/ps/sandblaster/sandblaster_client.h"

namespace yoke::parallel {

class SandblasterStrategy final : public Strategy {
 public:
  // Opens the servers. All must outlive the strategy; `optimizer` is L-BFGS, whose state is used for
  // checkpoints. Throws ConfigError for models with sparse samples or narrow weights.
  SandblasterStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                      OneDeviceOptions options, PsSetup setup);

  void acquire() override;
  // Keeps the batch. The loss is known after agree().
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  CommitResult commit(const CommitOptions& options) override;
  void drain() override;
  std::optional<Communication> communication() const override { return talk_; }
  Traffic traffic() const override;
  std::optional<Progress> progress() const override;
  std::vector<StatePiece> gradients() override;
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override { return std::nullopt; }

  DataShare share() const override;
  void begin(int64_t total_steps) override;
  void keep_alive() override { client_->say_alive(); }
  RunEnd finish(int64_t peak_memory) override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return compute_->forward(inputs);
  }
  std::vector<StatePiece> state() override;
  std::optional<int64_t> fetch_state() override;
  void restored(int64_t step) override { step_ = start_ = step; }

 private:
  struct Kept {
    std::vector<torch::Tensor> inputs;
    torch::Tensor target;
    double weight;
    int64_t samples() const { return target.size(0); }
  };
  bool is_first() const { return setup_.messenger->rank() == 0; }
  void join_run();
  ps::sandblaster::AskReply take_part(ps::sandblaster::AskHead head);
  double compute_samples(int64_t first, int64_t last);
  void gather_gradients();
  void upload(const torch::Tensor& flat);
  std::vector<StatePiece> of_first(std::vector<StatePiece> pieces) const;

  optim::Optimizer& optimizer_;
  PsSetup setup_;
  std::vector<torch::Tensor> parameters_;  // that are trained
  std::vector<std::string> names_;         // likewise
  torch::Tensor flat_, gradient_;          // on the host, one after the other
  std::unique_ptr<ps::sandblaster::SandblasterClient> client_;
  std::unique_ptr<Strategy> compute_;  // of one replica, without an update
  WorkerDelays delays_;
  std::vector<Kept> batches_;  // of this step
  bool agreed_ = false;        // on their loss
  int64_t batch_samples_ = 0;  // in them
  int64_t samples_ = 0;        // since the start
  int64_t start_ = 0, step_ = 0;
  bool begun_ = false, over_ = false;
  int signal_ = 0;
  double grad_norm_ = 0;  // where this step starts
  double compute_seconds_ = 0;
  Communication talk_;
};

}  // namespace yoke::parallel
