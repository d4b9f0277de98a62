// Makes the strategy that a configuration asks for, from what a rank brings.
//
// Two steps, with the optimizer between them: the maker first places the model, which says what the optimizer
// of this rank moves, then makes the strategy.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/compute/precision.h"
#include "yoke/compute/recompute_policy.h"
#include "yoke/models/model.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/layer_sums.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/choices.h"
#include "yoke/parallel/common/global_norm.h"
#include "yoke/parallel/membership.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

class Maker;

// What a rank has, whatever its strategy.
struct Kit {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;
  Precision autocast = Precision::kFp32;  // kFp32 also where the weights themselves are bf16
  // Brings an input of the model to the device, in the format its weights have.
  std::function<torch::Tensor(const torch::Tensor&)> place;
  models::Model model;
  std::vector<compute::Segment> segments;  // which blocks are recomputed in backward
  std::shared_ptr<Maker> maker;            // holds what the strategy stands on
  optim::GradScaler scaler;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Links to the other ranks. All must outlive the strategy.
struct Links {
  comm::Communicator* world = nullptr;   // the workers, all of them; null: alone, or they use servers
  comm::Messenger* messenger = nullptr;  // to servers
  cluster::World* job = nullptr;         // null: ranks are threads of one process
  HostedServer* server = nullptr;        // that this process hosts
  int workers = 1;
  int rank = 0;
};
Links links_of(Membership& member);

// How, and what of the run matters for it.
struct MakeOptions : Choices {
  optim::OptimizerOptions optimizer;
  Links links;
  int64_t batch_size = 1;
  int64_t accumulate = 1;
  bool equal_batches = true;     // every batch has batch_size samples: steps may be recorded (CUDA graphs)
  bool cuda_graph = true;        // where it can be
  bool skip_non_finite = false;  // train.non_finite = "skip"
  bool sync_batchnorm = false;   // statistics of all replicas' batches
  SliceAxis slices;              // where the kit's model is cut already
  // The layout of a model that replicas of this process hold besides the first; their values come from it.
  std::function<models::Model()> another_model;
  // Inputs of one sample, the same on every rank.
  std::function<models::Tensors()> sample_inputs;

  int64_t replicas_in_process() const;  // parallel.sync = "threads"
  // Whether other ranks take part in a step, and whether this one holds only a part of the model.
  bool has_peers() const;
  bool holds_part() const;
};

class Maker {
 public:
  virtual ~Maker() = default;
  // What the optimizer of this rank moves.
  virtual std::vector<optim::NamedTensor> parameters() = 0;
  // The state of that optimizer as pieces of the whole.
  virtual std::vector<StatePiece> optimizer_state() = 0;
  // How that optimizer gets sums over whole layers, where ranks hold pieces of them; `complete` is empty
  // where they hold them whole.
  virtual optim::LayerSums layer_sums() { return {}; }
  // Collective. Once; the kit has its optimizer and segments.
  virtual std::unique_ptr<Strategy> strategy() = 0;
};

// Places the kit's model. `kit` and `options` must outlive the maker. Collective. Throws ConfigError.
std::shared_ptr<Maker> place_model(Kit& kit, const MakeOptions& options);

// Settles what train.groups means for the kit's model, whole, and freezes parameters: before it is placed.
// Throws ConfigError for patterns that match nothing.
optim::OptimizerOptions settle_groups(Kit& kit, const optim::OptimizerOptions& options);

// The optimizer of what kit.maker has placed.
std::unique_ptr<optim::Optimizer> make_optimizer(Kit& kit, const optim::OptimizerOptions& options);

// A rule of the program's own for keeping replicas equal: `parallel.sync = name` makes a strategy with it.
// Before a configuration is read. Replica (common/replica.h) is a good base.
using MakeReplica = std::function<std::unique_ptr<Strategy>(Kit& kit, const struct OneDeviceOptions& options,
                                                            comm::Communicator& replicas)>;
void register_sync(const std::string& name, const std::string& sentence, MakeReplica make);

}  // namespace yoke::parallel
