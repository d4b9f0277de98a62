// Combines gradients while backward() runs: what DistributedDataParallel is inside.
//
// A hook behind every parameter's gradient says when it is there. The first backward() only watches; after it
// rank 0's order decides how buckets are cut, and every bucket is reduced when its last gradient has come,
// in the order of buckets on every rank.
//
// The last bucket leaves at the end of backward() at the earliest. So no rank can complete a round that
// another one has not computed to its end: a backward() that fails leaves the others waiting, and is either
// repeated here, where nothing was sent yet, or becomes an error of all ranks.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/ddp/buckets.h"
#include "yoke/parallel/ddp/distributed_data_parallel.h"
#include "yoke/parallel/ddp/same_model.h"

namespace yoke::parallel {

class Reducer {
 public:
  Reducer(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  bool sync = true;              // false: gradients stay local
  compute::GradientHomes homes;  // the places in buckets
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
  struct InstalledHook {
    std::shared_ptr<torch::autograd::Node> accumulator;
    uintptr_t key = 0;
  };

  void find_parameters(torch::nn::Module& module);
  void install(const torch::Tensor& parameter, std::function<void()> on_gradient);
  void scale_for_sum(const torch::Tensor& parameter);
  void on_gradient(Slot& slot);
  void begin();
  void repeat_round();
  void end_round();
  void start_counting();
  int active_ranks(bool this_one);
  void advance_ready(size_t end);
  void launch(Bucket& bucket);
  void finish(bool shadow);
  void complain_of_missing() const;
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
  DdpOptions options_;
  std::shared_ptr<CommHook> hook_;
  BucketLayout layout_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<Slot> slots_;
  std::vector<SparseParameter> sparse_;
  std::vector<Bucket> buckets_;  // none until the first backward() has been watched
  std::vector<InstalledHook> installed_;
  std::vector<torch::Tensor> scaled_;  // parameters with a hook that multiplies, for sums
  std::vector<unsigned> scaling_hooks_;

  // Of the backward() that is in flight.
  bool begun_ = false;
  bool sent_ = false;             // something of it
  std::weak_ptr<void> round_;     // expired with begun_ set: that backward() has failed
  std::vector<int64_t> arrived_;  // order of last arrivals
  size_t next_ = 0;               // bucket to be launched
  double divisor_ = 1;
  int64_t bytes_before_ = 0;
  int64_t saved_before_ = 0;
  double local_norm2_ = 0;

  bool joining_ = false;
  bool counts_known_ = false;  // how many gradients each parameter gets, from a backward() that was watched
  int64_t steps_ = 0;
  bool noise_wanted_ = false;
  bool measuring_noise_ = false;
  DdpStep step_;
};

}  // namespace yoke::parallel
