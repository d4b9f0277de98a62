// A worker of parameter servers: pulls parameters, computes on its own device, pushes gradients.
//
// The servers move the parameters; after commit() they are those of the version that this worker goes on
// with. A minibatch that an update has voided stops between blocks and is computed again on the new
// parameters.
//
// With ps.overlap, parameters arrive while the next forward pass runs, and under `sync` gradients leave while
// backward runs (ps_overlap.cpp). Replicas in parts and sparse tables move everything between steps.
//
// With fp16 the loss is scaled. Under rules whose updates consume gradients of one version all workers have
// the scale of the scheduler, and an overflow on one of them skips the update; under the others each worker
// has its own scale, and leaves out its own minibatch.
//
// A worker may be a replica in parts (PsSetup::replica): another strategy computes on all its ranks, each
// pushes and pulls its own part, and the first one asks the scheduler for all. Its ranks act together: what
// one of them decides in commit(), agree() and fetch_state() holds for all. A voided minibatch runs to its
// end there, and does not count.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/looks_ahead.h"
#include "yoke/parallel/sync/servers/host_copies.h"
#include "yoke/parallel/sync/servers/overlap.h"
#include "yoke/parallel/sync/servers/replica_layout.h"
#include "yoke/parallel/sync/servers/setup.h"
#include "yoke/parallel/sync/servers/sparse_rows.h"
#include "yoke/parallel/sync/servers/worker_delays.h"
#include "yoke/parallel/takes_batches.h"
#include "yoke/ps/learner.h"

namespace yoke::parallel {

class PsStrategy final : public Strategy, public LooksAhead, public TakesBatches {
 public:
  // Opens the servers. All must outlive the strategy. Parameters on the CPU move into one piece of memory.
  PsStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
             OneDeviceOptions options, PsSetup setup);
  // A part of a replica. `compute`: of the whole replica, whose commit() is not called; `parameters`: of this
  // rank. Collective over setup.replica.
  PsStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
             OneDeviceOptions options, PsSetup setup, std::unique_ptr<Strategy> compute,
             std::vector<optim::NamedTensor> parameters);
  ~PsStrategy() override;

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  // Asks for the rows of sparse tables that the next step uses, where its version is known.
  void upcoming(const std::vector<torch::Tensor>& inputs) override;
  // Where workers may join (ps.max_workers), the scheduler hands out what one gradient is computed on.
  std::optional<int64_t> next_batch() override;
  StepNews agree(const StepNews& here) override;
  void settle() override { compute_->settle(); }
  void share_buffers() override { compute_->share_buffers(); }
  // Returns once all parameters are here, those of sparse tables included.
  void drain() override;
  std::optional<Communication> communication() const override;
  Traffic traffic() const override;
  CommitResult commit(const CommitOptions& options) override;
  std::optional<Progress> progress() const override;
  std::vector<StatePiece> gradients() override { return owned_pieces(compute_->gradients()); }
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override;

  // Workers run at their own pace: worker 0 evaluates and saves by itself, on all its ranks.
  DataShare share() const override;
  comm::Communicator* team() const override;
  double steps_per_batch() const override;
  RunStart locate(const RunStart& restored) override;
  // Joins the others with what the model and the optimizer hold now; the first step would do it.
  void begin(int64_t total_steps) override;
  bool rejoined() const override;
  void keep_alive() override { learner_->say_alive(); }
  void failed(const std::exception& error) override;
  // Worker 0 waits for the others to leave; a worker that does not is the end's problem.
  RunEnd finish(int64_t peak_memory) override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override;
  nlohmann::json layout() const override { return compute_->layout(); }
  std::vector<StatePiece> state() override;
  std::optional<int64_t> fetch_state() override;
  void restored(int64_t step) override { start_version_ = step; }

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
  void pull_rows(const Kept& batch);
  // Thrown between blocks, caught in compute(). The engine of autograd takes what derives from std::exception
  // to the caller of backward() and is as before; anything else leaves its threads and its depth broken.
  class Voided : public std::exception {
   public:
    const char* what() const noexcept override { return "an update has voided this minibatch"; }
  };

  models::Model watched(const models::Model& model);
  // What moves while the worker computes (ps_overlap.cpp).
  void begin_overlap();
  models::Model overlapped(models::Model model);
  void await_block(size_t block);
  void before_backward(const torch::Tensor& loss);
  void announce(double loss);
  bool finish_pull();
  void pull_work();
  CommitResult commit_announced(const CommitOptions& commit);
  void count_flight(double until);
  // Downpour: what moves between local steps (ps_downpour.cpp).
  bool has_local_steps() const { return setup_.ps.n_push > 1 || setup_.ps.n_fetch > 1; }
  bool moves_behind() const { return setup_.ps.overlap && !in_parts() && has_local_steps(); }
  void push_behind(ps::Gradient gradient, bool fetch);
  void take_fetched(bool must);
  void lay_out();
  void open_servers();
  ps::ReplicaLinks replica_links();
  std::vector<StatePiece> owned_pieces(std::vector<StatePiece> pieces) const;
  std::vector<int64_t> memory_by_rank(const std::vector<int64_t>& own, const std::vector<int64_t>& others);
  void pull_all_rows();
  ps::WorkerEnd own_end(int64_t peak_memory) const;
  std::string report(const std::vector<ps::WorkerEnd>& ends);
  RunEnd leave(int64_t peak_memory, std::vector<int64_t> own);
  double sum_over_ranks(double own) const;
  void sum_in_place(std::span<double> values) const;
  bool in_parts() const { return setup_.replica != nullptr; }
  void ask_to_leave(int signal);
  // Has joined a running job.
  bool is_late() const { return !in_parts() && setup_.messenger->rank() >= setup_.workers_at_start; }
  bool is_first() const { return setup_.messenger->rank() == 0; }
  bool in_job() const { return setup_.job != nullptr && !setup_.job->alone(); }
  void join_run();
  void stop_if_void() const;
  bool scales() const { return options_.precision == Precision::kFp16; }
  bool shares_scale() const;
  void take_scale();
  bool judge_overflow(bool finite);
  bool find_work();
  void waited_since(double begin);
  void exposed_since(double begin);
  Losses losses_so_far() const;
  void tell_loss();
  void upload();
  void download(const torch::Tensor& flat, const std::vector<torch::Tensor>& from);
  void gather_gradient(size_t parameter);
  void deliver_parameter(size_t parameter);
  void local_step(double lr);
  double measure_own(const CommitOptions& commit, CommitResult& result);
  void note_update_norm(const CommitOptions& commit, CommitResult& result);
  bool in_place() const { return options_.device.is_cpu() && !in_parts(); }
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> optimizer_arrays() const;

  const models::Model& model_;
  optim::Optimizer& optimizer_;
  optim::GradScaler& scaler_;
  OneDeviceOptions options_;
  PsSetup setup_;
  std::unique_ptr<ReplicaLayout> layout_;
  std::vector<torch::Tensor> parameters_;  // that this rank pushes and pulls
  HostCopies copies_;
  torch::Tensor flat_;                                           // parameters, on the host
  torch::Tensor gradients_;                                      // likewise
  torch::Tensor accrued_;                                        // gradients of local steps, Downpour
  std::vector<torch::Tensor> parameter_parts_, gradient_parts_;  // of flat_ and gradients_
  compute::GradientHomes homes_;
  std::unique_ptr<ps::Learner> learner_;
  std::unique_ptr<SparseRows> rows_;  // parameters in sparse tables; null: none
  models::Model watched_;
  std::unique_ptr<Strategy> compute_;  // of one replica, without an update
  std::shared_ptr<std::atomic<bool>> leaving_ = std::make_shared<std::atomic<bool>>(false);
  WorkerDelays delays_;
  std::unique_ptr<Overlap> overlap_;  // null: everything moves between steps
  bool announces_ = false;            // gradients leave during backward
  bool pulling_ = false;              // parameters are on their way
  bool pulled_ = true;                // they are those of the current work
  double last_compute_seconds_ = 0;   // of the previous minibatch
  double flight_counted_ = 0;         // until then, in talk_
  torch::Tensor sent_, fetched_;      // Downpour: gradients and parameters on their way
  bool sending_ = false, fetching_ = false;
  std::vector<Kept> batches_;        // of this step
  const Kept* computing_ = nullptr;  // one of them
  bool begun_ = false;
  bool over_ = false;
  bool last_skipped_ = false;  // the update that the current work follows, by an overflow
  int64_t start_version_ = 0;
  int64_t minibatches_ = 0;  // of this worker
  int64_t taken_ = 0;        // batches of the gradient that is computed
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
