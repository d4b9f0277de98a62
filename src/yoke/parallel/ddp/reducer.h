// Combines gradients while backward() runs: what DistributedDataParallel is inside.
//
// A hook behind every parameter's gradient says when it is there. The first backward() only watches; after it
// rank 0's order decides how buckets are cut, and every bucket is reduced when its last gradient has come,
// in the order of buckets on every rank.
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
  void start_counting();
  int active_ranks(bool this_one);
  void advance_ready();
  void launch(Bucket& bucket);
  void finish_bucket(Bucket& bucket);
  void move_gradients_to_block(Bucket& bucket);
  void finish(bool shadow);
  void complain_of_missing() const;
  void agree_on_buckets();
  void fill_missing(Slot& slot, bool shadow);
  void see_what_is_used();
  void wait_for_buckets();
  void reduce_sparse(bool shadow);
  void hand_out();
  void note_step(double waited);
  torch::Device device() const;
  // Gradients live in blocks that buckets take in turn, and no longer than that.
  bool passing() const { return layout_.blocks > 0; }

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

  // Of the backward() that is under way.
  bool begun_ = false;
  std::vector<int64_t> arrived_;  // order of last arrivals
  size_t next_ = 0;               // bucket to be launched
  double divisor_ = 1;
  int64_t bytes_before_ = 0;
  int64_t saved_before_ = 0;
  double local_norm2_ = 0;

  bool joining_ = false;
  int64_t steps_ = 0;
  bool noise_wanted_ = false;
  bool measuring_noise_ = false;
  DdpStep step_;
};

}  // namespace yoke::parallel
