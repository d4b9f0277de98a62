// Replicas of one model on several ranks that stay equal: everybody's gradients are averaged in backward.
//
//   yoke::World world = yoke::join();
//   yoke::DistributedDataParallel ddp(*net, world.comm());
//   for (...) { optimizer.zero_grad(); loss(net->forward(x), y).backward(); optimizer.step(); }
//
// Your loop stays as it is. Gradients are gathered in buckets that lie in the communicator's own memory; a
// bucket is reduced as soon as its last gradient exists, while backward computes the others; backward()
// returns when the averages are in. The first backward() only watches in which order gradients come, and cuts
// the buckets after it.
//
// Every rank must run the same backward passes. A parameter that got no gradient is an error that names it,
// unless the options allow it. One thread. Gradients of sparse embeddings stay sparse.
//
// A backward() that throws (out of memory) may be repeated on its rank, with any batch, as long as none of
// its buckets had been sent: the other ranks wait, and the averages are as if it had not been. That is always
// so in the first step, with ddp.delay_allreduce, and when forward() threw. Afterwards the next backward() is
// a CommError, on all ranks. Gradients that a failed backward() left are the caller's: zero_grad().
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "yoke/comm/communicator.h"
#include "yoke/compute/gradient_home.h"
#include "yoke/parallel/ddp/bucket_plan.h"
#include "yoke/parallel/ddp/comm_hook.h"
#include "yoke/parallel/ddp/options.h"

namespace yoke {

// Of the last backward() that communicated, on this rank.
struct DdpStep {
  double comm_seconds = 0;     // communication was under way
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
  // gives rank 0's values to everybody. `module` and `comm` must outlive this. Throws ConfigError that names
  // the first difference, with both sides.
  DistributedDataParallel(torch::nn::Module& module, comm::Communicator& comm, DdpOptions options = {});
  ~DistributedDataParallel();  // gradients are left as they are; backward() is local again
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // While it lives, backward() adds to the local gradients only: for all micro-batches of a step but the
  // last.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Runs `loop`, which may do more steps on some ranks than on others: a rank that has run out takes part in
  // the others' reductions with nothing, until everybody is done. Sums are divided by the number of ranks
  // that gave something. Collective.
  void join(const std::function<void()>& loop);

  // Gives rank 0's buffers (BatchNorm's running statistics, which each rank has of its own batches) to
  // everybody: before all ranks evaluate what rank 0 saves. Collective.
  void share_buffers();

  // Replaces ddp.hook. Before the first backward().
  void set_hook(std::shared_ptr<CommHook> hook);
  const CommHook* hook() const;  // never null

  // Buckets as they are told to lie. Before the first backward(), after set_hook().
  void set_layout(parallel::BucketLayout layout);

  // The next backward() that communicates also measures the gradient noise: one more pass over the gradients.
  void measure_noise();

  // The places of gradients in the buckets, for who calls backward() on layers of compute/ (gradient_home.h).
  compute::GradientHomes& gradient_homes();

  const DdpStep& last_step() const;
  const DdpOptions& options() const;
  comm::Communicator& comm() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke
