// The parameters of a model, laid out so that every rank owns an equal part of each bucket.
//
// A rank's optimizer sees only the pieces it owns, and keeps state for nothing else (ZeRO, Rajbhandari et al.
// 2020). A piece is a run of elements of one parameter as they lie in memory.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/ddp/bucket_plan.h"
#include "yoke/parallel/ddp/options.h"
#include "yoke/parallel/ddp/same_model.h"

namespace yoke::parallel {

struct Piece {
  size_t parameter = 0;
  int64_t begin = 0, end = 0;  // elements of the parameter
  size_t bucket = 0;
  int64_t offset = 0;  // in the rank's part of the bucket
};

// What rank `rank` of `ranks` owns. `elements`: of each parameter. Every bucket is padded to a multiple of
// `ranks` and cut into equal parts.
std::vector<Piece> pieces_of_rank(const std::vector<std::vector<int64_t>>& plan,
                                  const std::vector<int64_t>& elements, int rank, int ranks);

class Shards {
 public:
  // Moves the trained parameters, with rank 0's values, into memory of the communicator: one for all ranks
  // where they can share it. Before an optimizer is made of them; `comm` and the module must outlive this.
  // Collective. Throws ConfigError where models differ, or a parameter cannot be cut (sparse gradients).
  Shards(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options);
  ~Shards();  // waits: memory must stay while data moves
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

  // Collective. `owned` (a number for each element this rank owns, in parts as the buckets have them) brought
  // together: whole tensors like the parameters, on rank `root`; elsewhere undefined ones.
  std::vector<torch::Tensor> assemble(const std::vector<torch::Tensor>& parts, int root) const;
  // A whole tensor like a parameter, as one run of elements in the parameter's layout.
  torch::Tensor run_of(size_t parameter, const torch::Tensor& whole) const;

 private:
  comm::Communicator& comm_;
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
