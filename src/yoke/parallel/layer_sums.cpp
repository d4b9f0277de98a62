#include "yoke/parallel/layer_sums.h"

#include <utility>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

constexpr const char* kWhat = "norms of layers";

void add_others(comm::Communicator& comm, torch::Tensor& sums, torch::Device device) {
  torch::Tensor here = sums.to(device);
  comm::all_reduce(comm, here, ReduceOp::kSum, kWhat);
  sums.copy_(here);
}

}  // namespace

optim::LayerSums sums_over_pieces(const PieceSource& source, torch::Device device) {
  optim::LayerSums sums;
  for (const auto& [name, parameter] : source.parameters) sums.layers.push_back(name);
  for (const Piece& piece : source.pieces) sums.layer_of.push_back(static_cast<int64_t>(piece.parameter));
  sums.complete = [&comm = source.comm, device](torch::Tensor& own) { add_others(comm, own, device); };
  return sums;
}

// Of parameters that all ranks hold whole, the first one counts.
optim::LayerSums sums_over_slices(optim::LayerSums inner, const std::vector<optim::NamedTensor>& parameters,
                                  const TensorParallel& cut, comm::Communicator& axis) {
  optim::LayerSums sums = std::move(inner);
  if (!sums.complete) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      sums.layers.push_back(parameters[i].first);
      sums.layer_of.push_back(static_cast<int64_t>(i));
    }
  }
  std::vector<double> counts;
  for (const std::string& name : sums.layers)
    counts.push_back(axis.rank() == 0 || !cut.slice(name).replicated() ? 1 : 0);
  sums.complete = [counts = torch::tensor(counts, torch::kDouble), among_pieces = std::move(sums.complete),
                   &axis](torch::Tensor& own) {
    if (among_pieces) among_pieces(own);
    own.mul_(counts.to(own.device()));
    add_others(axis, own, own.device());
  };
  return sums;
}

}  // namespace yoke::parallel
