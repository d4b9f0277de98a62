// The parameters of a model, laid out so that every rank owns an equal part of each bucket.
//
// A rank's optimizer sees only the pieces it owns, and keeps state for nothing else (ZeRO, Rajbhandari et al.
// 2020). A piece is a run of elements of one parameter as they lie in memory.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/ddp/bucket_plan.h"
#include "yoke/parallel/common/ddp/options.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {

class Shards {
 public:
  // Moves the trained parameters, with rank 0's values, into memory of the communicator: one for all ranks
  // where they can share it. Before an optimizer is made of them; `comm` and the module must outlive this.
  // Collective. Throws ConfigError where models differ, or a parameter cannot be cut (sparse gradients).
  Shards(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options);
  // The same of these parameters and buffers alone: those of a stage.
  Shards(const NamedTensors& parameters, const NamedTensors& buffers, comm::Communicator& comm,
         const DdpOptions& options);
  // Waits: memory must stay while data moves. Because of an exception it gives the communicator up first.
  ~Shards();
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  // For DistributedDataParallel, whose buckets then lie as the parameters do.
  const BucketLayout& layout() const { return layout_; }

  // What this rank's optimizer moves: never nothing (padding, where all else is taken).
  const std::vector<optim::NamedTensor>& owned() const { return owned_; }
  // The piece of owned()[i]; none behind them for padding.
  const std::vector<Piece>& pieces() const { return pieces_; }
  const NamedTensors& parameters() const { return parameters_; }
  comm::Communicator& comm() const { return comm_; }
  int64_t part_elements(size_t bucket) const { return flats_[bucket].numel() / comm_.size(); }
  const torch::Tensor& flat(size_t bucket) const { return flats_[bucket]; }

  // Every rank's part for everybody: begins in the order in which forward needs it, wait() before use. Where
  // parameters are in common nothing moves: a rank moves its part when all gradients are in, so that nobody
  // computes with it any more, and the others wait until it has.
  void begin_gather();
  void wait(size_t bucket);
  void wait_for_all();
  // The buckets that hold a parameter of these modules.
  std::vector<size_t> buckets_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const;

  // A whole tensor like a parameter, as one run of elements in the parameter's layout.
  torch::Tensor run_of(size_t parameter, const torch::Tensor& whole) const;
  PieceSource source() const { return {parameters_, pieces_, owned_, comm_}; }

 private:
  comm::Communicator& comm_;
  comm::GiveUpOnException give_up_;
  NamedTensors parameters_;
  std::vector<size_t> bucket_of_;  // parameter
  BucketLayout layout_;
  std::vector<torch::Tensor> flats_;
  bool in_common_ = false;
  std::vector<Piece> pieces_;
  std::vector<optim::NamedTensor> owned_;
  std::vector<comm::Pending> gathering_;  // by bucket; the first stands for all where they are in common
};

}  // namespace yoke::parallel
