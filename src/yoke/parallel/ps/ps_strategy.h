// A worker of parameter servers: pulls parameters, computes on its own device, pushes gradients.
//
// The servers move the parameters; after commit() they are those of the version that this worker goes on
// with. A minibatch that an update has voided stops between blocks and is computed again on the new
// parameters.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/ps/setup.h"
#include "yoke/plan/policies/delay_law.h"
#include "yoke/ps/learner.h"

namespace yoke::parallel {

class PsStrategy final : public Strategy {
 public:
  // Opens the servers. All must outlive the strategy. Parameters on the CPU move into one piece of memory.
  PsStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
             OneDeviceOptions options, PsSetup setup);
  ~PsStrategy() override;

  // Before the first step: the version of the state that was restored.
  void start_at(int64_t version) { start_version_ = version; }
  void end_at(int64_t updates) { setup_.updates = updates; }
  // Joins the others with what the model and the optimizer hold now; the first step would do it.
  void begin();

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  std::optional<Communication> communication() const override { return talk_; }
  CommitResult commit(const CommitOptions& options) override;
  std::optional<Progress> progress() const override;
  std::vector<torch::Tensor> gradients() override { return device_->gradients(); }
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override { return std::nullopt; }

  // Brings model and optimizer to a consistent state of all servers, for a checkpoint. Returns its version.
  int64_t fetch_state();
  std::string report() { return learner_->report(); }
  // For who is busy with something else than a minibatch: evaluating, say.
  void say_alive() { learner_->say_alive(); }
  // As ps::Learner has them.
  std::vector<int64_t> await_end() { return learner_->await_end(); }
  void goodbye(int64_t peak_memory) { learner_->goodbye(peak_memory); }

 private:
  struct Kept {
    std::vector<torch::Tensor> inputs;
    torch::Tensor target;
    MicroBatch micro;
  };
  struct Losses {
    int64_t count = 0;
    double sum = 0;
  };
  // Thrown between blocks, caught in compute(). The engine of autograd takes what derives from std::exception
  // to the caller of backward() and is as before; anything else leaves its threads and its depth broken.
  class Voided : public std::exception {
   public:
    const char* what() const noexcept override { return "an update has voided this minibatch"; }
  };

  models::Model watched(const models::Model& model);
  void lay_out();
  void stop_if_void() const;
  bool find_work();
  void waited_since(double begin);
  Losses losses_so_far() const;
  void tell_loss();
  void upload();
  void download(const torch::Tensor& flat, const std::vector<torch::Tensor>& from);
  void gather_gradients();
  std::vector<torch::Tensor> parts_of(const torch::Tensor& flat) const;
  void local_step(double lr);
  double measure_own(const CommitOptions& commit, CommitResult& result);
  void note_update_norm(const CommitOptions& commit, CommitResult& result);
  bool in_place() const { return options_.device.is_cpu(); }
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> optimizer_arrays() const;

  const models::Model& model_;
  optim::Optimizer& optimizer_;
  OneDeviceOptions options_;
  PsSetup setup_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::string> names_;
  torch::Tensor flat_;       // parameters, on the host
  torch::Tensor gradients_;  // likewise
  torch::Tensor accrued_;    // gradients of local steps, Downpour
  std::vector<torch::Tensor> gradient_parts_;
  compute::GradientHomes homes_;
  std::unique_ptr<ps::Learner> learner_;
  models::Model watched_;
  std::unique_ptr<OneDevice> device_;
  plan::DelayStream delays_;
  std::vector<Kept> batches_;  // of this step
  bool begun_ = false;
  bool over_ = false;
  int64_t start_version_ = 0;
  int64_t minibatches_ = 0;  // of this worker
  int64_t skipped_ = 0;      // since the last one that was committed
  double loss_ = 0;          // of this step
  int64_t samples_ = 0;      // since the last push
  double compute_seconds_ = 0;
  int64_t bad_element_ = -1;  // where the gradient of an update was not finite
  torch::Tensor last_loss_;
  torch::Tensor told_loss_;  // what agree() gave back
  Losses heard_losses_;      // of all workers, when that was last filled
  int asked_stop_ = 0;
  Communication talk_;
};

}  // namespace yoke::parallel
