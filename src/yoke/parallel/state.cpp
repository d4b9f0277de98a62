#include "yoke/parallel/state.h"

namespace yoke::parallel {
namespace {

StatePiece whole(const std::string& name, const torch::Tensor& values, StatePiece::Kind kind, int holder,
                 int holders) {
  StatePiece piece;
  piece.name = name;
  piece.values = values;
  piece.kind = kind;
  if (values.defined()) piece.shape = values.sizes().vec();
  piece.holder = holder;
  piece.holders = holders;
  return piece;
}

}  // namespace

std::vector<StatePiece> whole_state(const NamedTensors& parameters, const NamedTensors& buffers,
                                    const NamedTensors& optimizer, int holder, int holders) {
  std::vector<StatePiece> pieces;
  for (const auto& [name, tensor] : parameters)
    pieces.push_back(whole(name, tensor.detach(), StatePiece::Kind::kParameter, holder, holders));
  for (const auto& [name, tensor] : buffers)
    pieces.push_back(whole(name, tensor, StatePiece::Kind::kBuffer, holder, holders));
  for (const auto& [name, tensor] : optimizer) {
    pieces.push_back(whole(name, tensor, StatePiece::Kind::kOptimizer, holder, holders));
    if (name.find('/') != std::string::npos) continue;
    for (int64_t i = 0; i < tensor.numel(); ++i) pieces.back().places.push_back(i);
  }
  return pieces;
}

std::vector<StatePiece> whole_gradients(const NamedTensors& parameters, int holder, int holders) {
  std::vector<StatePiece> pieces;
  for (const auto& [name, parameter] : parameters) {
    pieces.push_back(whole(name, parameter.grad(), StatePiece::Kind::kParameter, holder, holders));
    pieces.back().shape = parameter.sizes().vec();
  }
  return pieces;
}

}  // namespace yoke::parallel
