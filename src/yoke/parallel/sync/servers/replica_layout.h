// How the parameters of a worker lie on the ranks that compute its replica together: which rank pushes and
// pulls which, and who else holds them.
//
// All parameters of the replica are one vector, the part of each rank in one piece, ranks in their order. A
// parameter that several ranks hold alike (LayerNorm beside tensor slices, an embedding tied over stages) is
// in the part of one of them, its owner, which gives its values to the others: every parameter is pushed and
// pulled once by each replica.
#pragma once

#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/state.h"

namespace yoke::parallel {

class ReplicaLayout {
 public:
  // `parameters` of this rank and `state` as pieces of the whole model. `ranks`: of the replica; null: this
  // rank holds all of it. Collective.
  ReplicaLayout(const std::vector<optim::NamedTensor>& parameters, const std::vector<StatePiece>& state,
                comm::Communicator* ranks);

  // Elements of all tensors of the replica; a 0 ends the part of a rank.
  const std::vector<int64_t>& tensors() const { return tensors_; }
  // This rank's part of the vector.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  const std::vector<optim::NamedTensor>& owned() const { return owned_; }
  bool owns(const std::string& parameter) const;
  // Whether some rank owns a part of it.
  bool holds(const std::string& parameter) const;
  // The parameter that holds an element of the vector.
  std::string name_at(int64_t element) const;

  // The owners' values on all ranks that hold the same. Collective.
  void spread() const;

 private:
  struct Link {
    int rank;
    std::vector<torch::Tensor> tensors;
  };

  comm::Communicator* ranks_;
  std::vector<int64_t> tensors_;
  std::vector<std::string> names_;  // of tensors_; "" for a 0
  int64_t begin_ = 0, end_ = 0;
  std::vector<optim::NamedTensor> owned_;
  std::vector<Link> from_, to_;  // lower ranks, higher ranks
};

}  // namespace yoke::parallel
