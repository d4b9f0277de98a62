#include "yoke/parallel/sync/servers/replica_layout.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::parallel {
namespace {

constexpr int kValuesTag = 65533;

struct Held {
  std::string name;
  std::string piece;  // its name with coordinates: the same on ranks that hold the same
  int64_t elements = 0;
  bool first = true;  // of those that hold it
};

std::vector<Held> held_here(const std::vector<optim::NamedTensor>& parameters,
                            const std::vector<StatePiece>& state) {
  std::map<std::string, const StatePiece*> pieces;
  for (const StatePiece& piece : state)
    if (piece.kind == StatePiece::Kind::kParameter) pieces[piece.name] = &piece;
  std::vector<Held> held;
  for (const auto& [name, tensor] : parameters) {
    auto found = pieces.find(name);
    if (tensor.numel() == 0 || found == pieces.end()) continue;  // an empty slice
    const StatePiece& piece = *found->second;
    held.push_back({name, checkpoint::piece_name(name, piece), tensor.numel(), piece.holder == 0});
  }
  return held;
}

std::vector<std::vector<Held>> held_by_all(const std::vector<Held>& own, comm::Communicator* ranks) {
  if (ranks == nullptr) return {own};
  nlohmann::json told = nlohmann::json::array();
  for (const Held& one : own) told.push_back({one.name, one.piece, one.elements, one.first});
  std::vector<std::vector<Held>> all;
  for (const nlohmann::json& rank : gather_json(told, ranks)) {
    all.emplace_back();
    for (const nlohmann::json& one : rank)
      all.back().push_back({one.at(0).get<std::string>(), one.at(1).get<std::string>(),
                            one.at(2).get<int64_t>(), one.at(3).get<bool>()});
  }
  return all;
}

}  // namespace

ReplicaLayout::ReplicaLayout(const std::vector<optim::NamedTensor>& parameters,
                             const std::vector<StatePiece>& state, comm::Communicator* ranks)
    : ranks_(ranks) {
  const std::map<std::string, torch::Tensor> here(parameters.begin(), parameters.end());
  const std::vector<std::vector<Held>> all = held_by_all(held_here(parameters, state), ranks);
  const size_t own = ranks != nullptr ? static_cast<size_t>(ranks->rank()) : 0;
  std::map<std::string, size_t> owners;  // by piece
  int64_t at = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == own) begin_ = at;
    for (const Held& one : all[rank]) {
      if (!one.first || !owners.emplace(one.piece, rank).second) continue;
      tensors_.push_back(one.elements);
      names_.push_back(one.name);
      at += one.elements;
      if (rank == own) owned_.emplace_back(one.name, here.at(one.name));
    }
    if (rank == own) end_ = at;
    if (rank + 1 == all.size()) break;
    tensors_.push_back(0);
    names_.emplace_back();
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Link from{static_cast<int>(rank), {}}, to = from;
    for (const Held& one : all[rank]) {
      auto owner = owners.find(one.piece);
      YOKE_CHECK(owner != owners.end(), "no rank owns '{}'", one.piece);
      if (owner->second == own && rank != own) to.tensors.push_back(here.at(one.name));
    }
    for (const Held& one : all[own])
      if (rank != own && owners.at(one.piece) == rank) from.tensors.push_back(here.at(one.name));
    // The same order on both sides, and no cycle of ranks that wait for each other.
    YOKE_CHECK(from.tensors.empty() || rank < own, "rank {} owns what rank {} holds", rank, own);
    if (!from.tensors.empty()) from_.push_back(std::move(from));
    if (!to.tensors.empty()) to_.push_back(std::move(to));
  }
}

bool ReplicaLayout::holds(const std::string& parameter) const {
  return std::find(names_.begin(), names_.end(), parameter) != names_.end();
}

bool ReplicaLayout::owns(const std::string& parameter) const {
  return std::any_of(owned_.begin(), owned_.end(), [&](const auto& one) { return one.first == parameter; });
}

std::string ReplicaLayout::name_at(int64_t element) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (element < tensors_[i]) return names_[i];
    element -= tensors_[i];
  }
  return "";
}

void ReplicaLayout::spread() const {
  torch::NoGradGuard no_grad;
  auto flat_size = [](const Link& link) {
    int64_t elements = 0;
    for (const torch::Tensor& one : link.tensors) elements += one.numel();
    return elements;
  };
  for (const Link& link : from_) {
    torch::Tensor flat = torch::empty({flat_size(link)}, link.tensors[0].options().requires_grad(false));
    comm::receive(*ranks_, flat, link.rank, kValuesTag, "values of shared parameters");
    int64_t at = 0;
    for (const torch::Tensor& one : link.tensors) {
      one.detach().copy_(flat.narrow(0, at, one.numel()).view(one.sizes()));
      at += one.numel();
    }
  }
  for (const Link& link : to_) {
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& one : link.tensors) parts.push_back(one.detach().reshape({-1}));
    comm::send(*ranks_, torch::cat(parts), link.rank, kValuesTag, "values of shared parameters");
  }
}

}  // namespace yoke::parallel
