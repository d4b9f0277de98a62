#include "yoke/parallel/ddp/zero/sharded_state.h"

#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

// "exp_avg/conv1.weight@0:12" is of kind exp_avg; "step" has a number for each parameter.
std::string kind_of(const std::string& name) {
  return name.substr(0, name.find('/'));
}

bool counts_by_parameter(const std::string& name) {
  return name.find('/') == std::string::npos;
}

// State of one kind, a tensor for each piece, in the order of pieces. Pieces without one have none.
struct Kind {
  std::string name;
  bool by_parameter = false;
  std::vector<torch::Tensor> of_pieces;
  torch::Tensor counts;
};

std::vector<Kind> kinds_of(const Shards& shards, optim::Optimizer& optimizer) {
  std::map<std::string, size_t> piece_at;
  for (size_t i = 0; i < shards.pieces().size(); ++i) piece_at[shards.owned()[i].first] = i;
  std::vector<Kind> kinds;
  for (const auto& [name, tensor] : optimizer.state()) {
    std::string kind = kind_of(name);
    if (kinds.empty() || kinds.back().name != kind)
      kinds.push_back({kind, counts_by_parameter(name), std::vector<torch::Tensor>(piece_at.size()), {}});
    if (kinds.back().by_parameter) {
      kinds.back().counts = tensor;
    } else if (auto piece = piece_at.find(name.substr(kind.size() + 1)); piece != piece_at.end()) {
      kinds.back().of_pieces[piece->second] = tensor;
    }
  }
  return kinds;
}

torch::Tensor whole_counts(const Shards& shards, const Kind& kind, comm::Communicator& comm) {
  torch::Tensor all = torch::zeros({static_cast<int64_t>(shards.parameters().size())}, kind.counts.options());
  for (size_t i = 0; i < shards.pieces().size(); ++i)
    all[static_cast<int64_t>(shards.pieces()[i].parameter)] = kind.counts[static_cast<int64_t>(i)];
  comm::all_reduce(comm, all, ReduceOp::kMax, "updates of each parameter");
  return all;
}

}  // namespace

OwnedState owned_state(const Shards& shards, optim::Optimizer& optimizer) {
  torch::NoGradGuard no_grad;
  OwnedState state;
  for (const Kind& kind : kinds_of(shards, optimizer)) {
    if (kind.by_parameter) {
      state.whole.emplace_back(kind.name, whole_counts(shards, kind, shards.comm()));
      continue;
    }
    for (size_t i = 0; i < shards.pieces().size(); ++i) {
      const Piece& piece = shards.pieces()[i];
      if (kind.of_pieces[i].defined())
        state.parts.push_back(
            {kind.name + "/" + shards.parameters()[piece.parameter].first, piece, kind.of_pieces[i]});
    }
  }
  return state;
}

void restore_pieces(const std::vector<optim::NamedTensor>& whole, const Shards& shards,
                    optim::Optimizer& optimizer, const std::string& what) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> saved(whole.begin(), whole.end());
  auto find = [&](const std::string& name, int64_t elements, torch::ScalarType type) {
    auto found = saved.find(name);
    if (found == saved.end())
      throw CheckpointError("{}: '{}' is missing: it is of another optimizer. Start with --resume never.",
                            what, name);
    if (found->second.numel() != elements || found->second.scalar_type() != type)
      throw CheckpointError("{}: '{}' has {} elements of {}, this run's {} of {}. It is of another model.",
                            what, name, found->second.numel(), c10::toString(found->second.scalar_type()),
                            elements, c10::toString(type));
    return found->second;
  };
  for (const Kind& kind : kinds_of(shards, optimizer)) {
    if (kind.by_parameter) {
      torch::Tensor all =
          find(kind.name, static_cast<int64_t>(shards.parameters().size()), kind.counts.scalar_type());
      for (size_t i = 0; i < shards.pieces().size(); ++i)
        kind.counts[static_cast<int64_t>(i)] = all[static_cast<int64_t>(shards.pieces()[i].parameter)];
      continue;
    }
    for (size_t i = 0; i < shards.pieces().size(); ++i) {
      const Piece& piece = shards.pieces()[i];
      if (!kind.of_pieces[i].defined()) continue;
      const auto& [name, parameter] = shards.parameters()[piece.parameter];
      torch::Tensor source = find(kind.name + "/" + name, parameter.numel(), kind.of_pieces[i].scalar_type());
      kind.of_pieces[i].copy_(
          shards.run_of(piece.parameter, source).narrow(0, piece.begin, piece.end - piece.begin));
    }
  }
}

}  // namespace yoke::parallel
