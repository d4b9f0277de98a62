// An optimizer whose state is sharded over ranks (ZeRO 1), around your own module and loop.
//
//   yoke::ZeroOptimizer optimizer(*net, world.comm(), [](std::vector<torch::Tensor> own) {
//     return std::make_unique<torch::optim::AdamW>(own, torch::optim::AdamWOptions(1e-3));
//   });
//   for (...) { optimizer.zero_grad(); loss(net->forward(x), y).backward(); optimizer.step(); }
//
// Every rank has the whole module. Gradients are averaged while backward() runs, each rank gets those of the
// pieces it owns, moves them, and step() returns when every rank has everybody's. The bytes are those of
// all_reduce, the state of the optimizer is 1/N. Instead of DistributedDataParallel, not beside it.
//
// Every trained parameter must get a dense gradient in every backward(), on every rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/common/ddp/distributed_data_parallel.h"
#include "yoke/parallel/common/ddp/options.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke {

namespace parallel {
class Shards;
class ShardHook;
}  // namespace parallel

class ZeroOptimizer {
 public:
  // Makes the optimizer of this rank's pieces: flat tensors, each a run of one parameter's elements.
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

  // Collective: gives rank 0's values to everybody. `module` and `comm` must outlive this. Throws ConfigError
  // where models differ or a parameter cannot be cut (sparse gradients).
  ZeroOptimizer(torch::nn::Module& module, comm::Communicator& comm, const Make& make,
                DdpOptions options = {});
  ~ZeroOptimizer();  // parameters stay as they are
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  void zero_grad();
  // Moves what this rank owns and waits for the others' parts. Collective.
  void step();
  // The norm of all gradients; scaled down to `max_norm` where it is positive. Collective, before step().
  double clip_grad_norm(double max_norm);
  // While it lives, backward() adds to local gradients only: for all micro-batches but the last.
  [[nodiscard]] DistributedDataParallel::NoSync no_sync() { return ddp_->no_sync(); }

  torch::optim::Optimizer& optimizer() { return *optimizer_; }  // for learning rates and its state
  parallel::PieceSource pieces() const;

 private:
  void take_gradients();

  std::unique_ptr<parallel::Shards> shards_;
  std::shared_ptr<parallel::ShardHook> hook_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::vector<torch::Tensor> owned_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool taken_ = false;  // gradients of this step
};

}  // namespace yoke
