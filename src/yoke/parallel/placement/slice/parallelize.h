// Tensor parallelism from outside of a model (Shoeybi et al. 2019, Korthikanti et al. 2022).
//
//   yoke::TensorParallel cut = yoke::parallelize(*net, world.comm(), yoke::parse_tensor_plan(text));
//   … your own loop: forward, loss and backward as on one device, the same batch on every rank
//
// Works on any torch::nn::Module made of Linear, Conv2d, Embedding, LayerNorm and BatchNorm2d: weights shrink
// in place to this rank's slices, and their operators communicate. The module's own code must take widths
// from its tensors ("as many heads as came"), not from what it was built with. Losses and gradients are those
// of one device up to rounding; every rank computes the same loss. Outputs of a vocabulary head are this
// rank's slice of the logits, which torch::cross_entropy_loss and torch::nn::CrossEntropyLoss take as if it
// were all.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/plan/tensor/layer_cuts.h"
#include "yoke/plan/tensor/tensor_plan.h"

namespace yoke {

using plan::parse_tensor_plan;
using plan::TensorPlan;

struct TensorParallelOptions {
  // Between pairs of layers, activations [batch, sequence, width] are sharded along the sequence: less
  // memory, the same number of bytes. Requires a sequence length that the ranks divide, and position
  // embeddings that use compute::sequence_part(). Layers that the plan calls "replicated" are computed on
  // whole activations.
  bool sequence = false;
};

// What this rank holds of a parameter or buffer: `ranges` of dim `dim`, one after the other; dim -1: all.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> global_shape;
  int64_t dim = -1;
  std::vector<plan::CutRange> ranges;
  bool replicated() const { return dim < 0; }
};

// A module that is cut. Keep it as long as the module is used; destroy it on the thread that made it.
class [[nodiscard]] TensorParallel {
 public:
  ~TensorParallel();
  TensorParallel(TensorParallel&&) noexcept;

  // Of every parameter and buffer, in the module's order; tied ones once for each name.
  const std::vector<TensorSlice>& slices() const;
  // Throws ConfigError for a name that is none.
  const TensorSlice& slice(const std::string& name) const;
  // The same as rank `rank` holds it.
  TensorSlice slice(const std::string& name, int rank) const;

  // This rank's part of a whole tensor (a parameter, its gradient or its optimizer state); a copy.
  torch::Tensor take(const std::string& name, const torch::Tensor& whole) const;
  // The whole of such parts. Collective over the axis; replicated ones are returned as they are.
  torch::Tensor gather(const std::string& name, const torch::Tensor& part) const;

  // Operators are intercepted on the thread that called parallelize(). Another one that runs the module's
  // forward pass holds one of these.
  std::shared_ptr<void> use_on_this_thread() const;

 private:
  friend TensorParallel parallelize(torch::nn::Module& module, comm::Communicator& axis,
                                    const TensorPlan& plan, const TensorParallelOptions& options);
  struct Impl;
  explicit TensorParallel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Cuts `module`, whose weights must be the same on every rank (draw them from one seed, or load them,
// before). `axis` must outlive the result; backward passes communicate on it. Throws ConfigError as
// plan::cut_layers(), before anything changes.
TensorParallel parallelize(torch::nn::Module& module, comm::Communicator& axis, const TensorPlan& plan,
                           const TensorParallelOptions& options = {});

// The layers of a module that a plan can name, in order of registration.
std::vector<plan::TensorLayer> tensor_layers(const torch::nn::Module& module);

}  // namespace yoke
