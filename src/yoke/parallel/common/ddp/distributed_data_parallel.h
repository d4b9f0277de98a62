// Data parallel training: replicas of one model on several ranks, with gradients averaged during backward.
//
//   yoke::World world = yoke::join();
//   yoke::DistributedDataParallel ddp(*net, world.comm());
//   for (...) { optimizer.zero_grad(); loss(net->forward(x), y).backward(); optimizer.step(); }
//
// Your loop does not change. Gradients are collected in buckets in the communicator's memory; a bucket is
// reduced as soon as its last gradient exists, while backward computes the others; backward() returns once
// the averages are complete. The first backward() only observes the order in which gradients become ready,
// and the buckets are formed after it.
//
// Every rank must run the same backward passes. A parameter without a gradient is an error that names it,
// unless the options allow it. One thread. Gradients of sparse embeddings stay sparse.
//
// A backward() that throws (out of memory) may be repeated on its rank, with any batch, as long as none of
// its buckets was sent: the other ranks wait, and the averages are the same as without the failure. That is
// always possible in the first step, with ddp.delay_allreduce, and if forward() threw. Otherwise the next
// backward() is a CommError on all ranks. The caller must clear gradients left by a failed backward() with
// zero_grad().
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "yoke/comm/communicator.h"
#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/common/ddp/bucket_plan.h"
#include "yoke/parallel/common/ddp/comm_hook.h"
#include "yoke/parallel/common/ddp/options.h"

namespace yoke {

// Statistics of the last backward() that communicated, on this rank.
struct DdpStep {
  double comm_seconds = 0;     // communication in flight
  double exposed_seconds = 0;  // backward waited for it
  int64_t bytes_sent = 0;      // payload
  int64_t bytes_saved = 0;     // by the hook, before the algorithm's factor
  struct Bucket {
    double started = 0;  // yoke::now_seconds()
    double ended = 0;
    int64_t bytes = 0;
  };
  std::vector<Bucket> buckets;
  // Squared norms of the gradient before (mean over ranks) and after the reduction; see measure_noise().
  double small_norm2 = 0;
  double big_norm2 = 0;
};

class DistributedDataParallel {
 public:
  // Collective. Checks that all ranks have the same parameters and buffers (number, names, shapes, types) and
  // broadcasts the values of rank 0. `module` and `comm` must outlive this. Throws ConfigError that names the
  // first difference, with both sides.
  DistributedDataParallel(torch::nn::Module& module, comm::Communicator& comm, DdpOptions options = {});
  ~DistributedDataParallel();  // gradients are not changed; backward() is local again
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // While it exists, backward() accumulates local gradients only: for all micro-batches of a step but the
  // last. Movable; a moved-from guard does nothing.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(NoSync&& other) noexcept;
    NoSync& operator=(NoSync&& other) noexcept;

   private:
    void end();

    DistributedDataParallel* ddp_;  // nullptr: moved from
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Combines the gradients that passes under no_sync() have left, as the end of a backward() would: for
  // passes that are replayed instead of run. Collective. Requires: one backward() that communicated, and
  // every parameter that had a gradient then has one now.
  void reduce();

  // Runs `loop`, which may do more steps on some ranks than on others: a rank that has finished contributes
  // zeros to the reductions of the others until all are done. Sums are divided by the number of contributing
  // ranks. Collective.
  void join(const std::function<void()>& loop);

  // Broadcasts rank 0's buffers (BatchNorm's running statistics, which differ between ranks): call it before
  // all ranks evaluate what rank 0 saves. Collective.
  void share_buffers();

  // Replaces ddp.hook. Call it before the first backward().
  void set_hook(std::shared_ptr<CommHook> hook);
  const CommHook* hook() const;  // never nullptr

  // Sets an explicit bucket layout. Call it before the first backward(), after set_hook().
  void set_layout(parallel::BucketLayout layout);

  // The next backward() that communicates also measures the gradient noise: one more pass over the gradients.
  void measure_noise();

  // Places of gradients in the buckets, for callers of backward() on layers of compute/ (gradient_home.h).
  compute::GradientHomes& gradient_homes();

  const DdpStep& last_step() const;
  const DdpOptions& options() const;
  comm::Communicator& comm() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke
