#include "yoke/parallel/placement/sharded/owned_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace yoke::parallel {

namespace {

// Pieces of the units that are trained, or of the others.
OwnedPieces::List cut(const std::vector<std::unique_ptr<Unit>>& units, const std::vector<UnitPlan>& plans,
                      const NamedTensors& parameters, const comm::Communicator& comm, bool trained) {
  OwnedPieces::List own;
  std::vector<int64_t> place(parameters.size(), -1), elements;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].second.requires_grad() != trained) continue;
    place[i] = static_cast<int64_t>(own.parameters.size());
    own.parameters.push_back(parameters[i]);
    elements.push_back(parameters[i].second.numel());
  }
  std::vector<std::vector<int64_t>> layout(units.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (size_t index : plans[u].parameters)
      if (plans[u].trained == trained) layout[u].push_back(place[index]);
  own.pieces = pieces_of_rank(layout, elements, comm.rank(), comm.size());
  for (const Piece& piece : own.pieces)
    own.owned.emplace_back(
        fmt::format("{}@{}:{}", own.parameters[piece.parameter].first, piece.begin, piece.end),
        units[piece.bucket]->shard().narrow(0, piece.offset, piece.end - piece.begin).detach());
  return own;
}

}  // namespace

OwnedPieces::OwnedPieces(const std::vector<std::unique_ptr<Unit>>& units, const std::vector<UnitPlan>& plans,
                         const NamedTensors& parameters, comm::Communicator& comm)
    : trained_(cut(units, plans, parameters, comm, /*trained=*/true)),
      frozen_(cut(units, plans, parameters, comm, /*trained=*/false)),
      of_unit_(units.size()),
      gradients_(units.size()) {
  for (size_t i = 0; i < trained_.pieces.size(); ++i) of_unit_[trained_.pieces[i].bucket].push_back(i);
  for (const auto& unit : units) options_.push_back(unit->shard().options());
  if (trained_.owned.empty() && !units.empty())
    trained_.owned.emplace_back("padding", units[0]->shard().narrow(0, 0, 1).detach());
}

void OwnedPieces::add_gradients(size_t unit, const torch::Tensor& part) {
  const std::vector<size_t>& members = of_unit_[unit];
  bool fresh = std::none_of(members.begin(), members.end(),
                            [&](size_t i) { return trained_.owned[i].second.grad().defined(); });
  torch::Tensor& all = gradients_[unit];
  if (!all.defined()) all = torch::empty({part.numel()}, options_[unit]);
  if (fresh) all.copy_(part);
  for (size_t i : members) {
    const Piece& piece = trained_.pieces[i];
    int64_t count = piece.end - piece.begin;
    torch::Tensor& gradient = trained_.owned[i].second.mutable_grad();
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
