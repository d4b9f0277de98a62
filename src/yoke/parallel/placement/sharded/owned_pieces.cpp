#include "yoke/parallel/placement/sharded/owned_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace yoke::parallel {

OwnedPieces::OwnedPieces(const std::vector<std::unique_ptr<Unit>>& units, const std::vector<UnitPlan>& plans,
                         const NamedTensors& parameters, comm::Communicator& comm)
    : of_unit_(units.size()), gradients_(units.size()) {
  std::vector<int64_t> trained_at(parameters.size(), -1), elements;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].second.requires_grad()) continue;
    trained_at[i] = static_cast<int64_t>(parameters_.size());
    parameters_.push_back(parameters[i]);
    elements.push_back(parameters[i].second.numel());
  }
  std::vector<std::vector<int64_t>> layout(units.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (size_t index : plans[u].parameters)
      if (plans[u].trained) layout[u].push_back(trained_at[index]);
  pieces_ = pieces_of_rank(layout, elements, comm.rank(), comm.size());
  for (const Piece& piece : pieces_) {
    of_unit_[piece.bucket].push_back(owned_.size());
    owned_.emplace_back(
        fmt::format("{}@{}:{}", parameters_[piece.parameter].first, piece.begin, piece.end),
        units[piece.bucket]->shard().narrow(0, piece.offset, piece.end - piece.begin).detach());
  }
  for (const auto& unit : units) options_.push_back(unit->shard().options());
  if (owned_.empty() && !units.empty())
    owned_.emplace_back("padding", units[0]->shard().narrow(0, 0, 1).detach());
}

void OwnedPieces::add_gradients(size_t unit, const torch::Tensor& part) {
  const std::vector<size_t>& members = of_unit_[unit];
  bool fresh = std::none_of(members.begin(), members.end(),
                            [&](size_t i) { return owned_[i].second.grad().defined(); });
  torch::Tensor& all = gradients_[unit];
  if (!all.defined()) all = torch::empty({part.numel()}, options_[unit]);
  if (fresh) all.copy_(part);
  for (size_t i : members) {
    const Piece& piece = pieces_[i];
    int64_t count = piece.end - piece.begin;
    torch::Tensor& gradient = owned_[i].second.mutable_grad();
    torch::Tensor place = all.narrow(0, piece.offset, count);
    if (fresh) {
      gradient = place.detach();
    } else if (gradient.defined()) {
      gradient.add_(part.narrow(0, piece.offset, count).to(gradient.options()));
    } else {
      gradient = place.copy_(part.narrow(0, piece.offset, count)).detach();
    }
  }
}

int64_t OwnedPieces::gradient_bytes() const {
  int64_t bytes = 0;
  for (const torch::Tensor& gradient : gradients_)
    if (gradient.defined()) bytes += static_cast<int64_t>(gradient.nbytes());
  return bytes;
}

}  // namespace yoke::parallel
