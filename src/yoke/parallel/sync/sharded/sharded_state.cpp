#include "yoke/parallel/sync/sharded/sharded_state.h"

#include <map>

namespace yoke::parallel {

std::vector<StatePiece> sharded_state(const PieceSource& source,
                                      const std::vector<optim::NamedTensor>& optimizer) {
  const size_t pieces = source.pieces.size();
  std::map<std::string, size_t> number_of;
  for (size_t i = 0; i < pieces; ++i) number_of[source.owned[i].first] = i;
  std::vector<StatePiece> state;
  for (const auto& [name, tensor] : optimizer) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos) {  // "exp_avg/conv1.weight@0:12"
      auto found = number_of.find(name.substr(slash + 1));
      if (found == number_of.end()) continue;  // padding
      state.push_back(piece_of(source, found->second, StatePiece::Kind::kOptimizer, tensor));
      state.back().name = name.substr(0, slash + 1) + state.back().name;
      continue;
    }
    StatePiece list;
    list.name = name;
    list.kind = StatePiece::Kind::kOptimizer;
    list.values = tensor.narrow(0, 0, static_cast<int64_t>(pieces));
    list.shape = {static_cast<int64_t>(source.parameters.size())};
    for (const Piece& piece : source.pieces) list.places.push_back(static_cast<int64_t>(piece.parameter));
    if (pieces > 0) state.push_back(std::move(list));
  }
  return state;
}

}  // namespace yoke::parallel
