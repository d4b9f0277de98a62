// Reduces gradients while backward() runs: the implementation of DistributedDataParallel.
//
// An autograd hook on every parameter signals its gradient. The first backward() only observes; after it rank
// 0's order determines the buckets, and every bucket is reduced when its last gradient has arrived, in bucket
// order on every rank.
//
// The last bucket is never sent before the end of backward(). So no rank can complete a round that another
// one has not computed to the end: a backward() that fails leaves the others waiting, and is either repeated
// on this rank, if nothing was sent yet, or becomes an error on all ranks.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "yoke/comm/give_up.h"
#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/common/ddp/buckets.h"
#include "yoke/parallel/common/ddp/distributed_data_parallel.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/common/gradient_hooks.h"

namespace yoke::parallel {

// One thread, plus autograd's calls during backward().
class Reducer {
 public:
  Reducer(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  bool sync = true;              // false: gradients stay local
  compute::GradientHomes homes;  // places in buckets
  void reduce();
  void join(const std::function<void()>& loop);
  void set_hook(std::shared_ptr<CommHook> hook);
  void set_layout(BucketLayout layout);
  void share_buffers();
  void measure_noise() { noise_wanted_ = true; }

  const DdpOptions& options() const { return options_; }
  const CommHook& hook() const { return *hook_; }
  const DdpStep& last_step() const { return step_; }
  comm::Communicator& comm() const { return comm_; }

 private:
  struct SparseParameter {
    std::string name;
    torch::Tensor parameter;
    bool arrived = false;
  };

  void find_parameters(torch::nn::Module& module);
  void install(const torch::Tensor& parameter, std::function<void()> on_gradient);
  void scale_for_sum(const torch::Tensor& parameter);
  void on_gradient(Slot& slot);
  // Start, repetition and end of a round: one backward() that communicates.
  void begin();
  void start_round();
  void repeat_round();
  void end_round();
  void start_counting();
  int active_ranks(bool this_one);
  // Launches ready buckets below `end`, in index order.
  void advance_ready(size_t end);
  void launch(Bucket& bucket);
  // End of backward(): waits for all buckets and writes the results to the gradients.
  void finish(bool shadow);
  void complain_of_missing() const;
  // After the first backward(): forms the buckets in rank 0's order. Collective.
  void agree_on_buckets();
  void make_places();
  void fill_missing(Slot& slot, bool shadow);
  void see_what_is_used(bool shadow);
  void wait_for_buckets();
  void reduce_sparse(bool shadow);
  void hand_out();
  void note_step(double waited);
  torch::Device device() const;

  comm::Communicator& comm_;
  comm::GiveUpOnException give_up_;
  DdpOptions options_;
  std::shared_ptr<CommHook> hook_;
  BucketLayout layout_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<Slot> slots_;
  std::vector<SparseParameter> sparse_;
  std::vector<Bucket> buckets_;  // empty until the first backward() has been observed
  GradientHooks gradient_hooks_;
  std::vector<torch::Tensor> scaled_;  // parameters with a scaling hook, for sums
  std::vector<unsigned> scaling_hooks_;

  // State of the backward() in flight.
  bool begun_ = false;
  bool sent_ = false;             // some of it was sent
  std::weak_ptr<void> round_;     // expired while begun_ is set: that backward() has failed
  std::vector<int64_t> arrived_;  // order of last arrivals
  size_t next_ = 0;               // next bucket to be launched
  double divisor_ = 1;
  int64_t bytes_before_ = 0;
  int64_t saved_before_ = 0;
  double local_norm2_ = 0;

  bool joining_ = false;
  bool counts_known_ = false;  // how many gradients each parameter gets, observed in a backward()
  int64_t steps_ = 0;
  bool noise_wanted_ = false;
  bool measuring_noise_ = false;
  DdpStep step_;
};

}  // namespace yoke::parallel
