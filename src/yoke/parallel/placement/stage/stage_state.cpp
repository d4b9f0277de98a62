#include "yoke/parallel/placement/stage/stage_state.h"

#include <map>

#include "yoke/base/error.h"
#include "yoke/parallel/sync/sharded/sharded_state.h"

namespace yoke::parallel {
namespace {

constexpr int kNotTheWriter = -1;

StatePiece piece_of(const PipelineStage& stage, const OwnedTensor& tensor) {
  const PipelinePlace& place = stage.place;
  StatePiece piece;
  piece.name = tensor.name;
  piece.kind = tensor.is_parameter ? StatePiece::Kind::kParameter : StatePiece::Kind::kBuffer;
  piece.values = tensor.tensor.detach();
  piece.shape = tensor.tensor.sizes().vec();
  piece.holders = stage.layout.request.replicas_of(place.stage) * stage.layout.copies;
  piece.holder =
      tensor.stages[0] == place.stage ? place.replica * stage.layout.copies + place.copy : kNotTheWriter;
  return piece;
}

// Whether another stage saves this parameter.
bool saved_elsewhere(const PipelineStage& stage, const std::string& parameter) {
  for (const OwnedTensor& one : stage.tensors)
    if (one.name == parameter) return one.stages[0] != stage.place.stage;
  return false;
}

// `list` has a number for each piece: where these stand among all parameters of the model.
void place_in_model(StatePiece& list, const PipelineStage& stage, const PieceSource& source) {
  std::map<std::string, int64_t> numbers;
  for (const OwnedTensor& one : stage.tensors)
    if (one.is_trained()) numbers.emplace(one.name, static_cast<int64_t>(numbers.size()));
  list.shape = {static_cast<int64_t>(numbers.size())};
  for (int64_t& place : list.places) place = numbers.at(source.parameters[static_cast<size_t>(place)].first);
}

// This rank's pieces of the stage's parameters, with values that `value_of` takes from what the rank owns.
template <class ValueOf>
std::vector<StatePiece> pieces_with(const PipelineStage& stage, const PieceSource& source, ValueOf value_of) {
  std::vector<StatePiece> pieces;
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    pieces.push_back(
        parallel::piece_of(source, i, StatePiece::Kind::kParameter, value_of(source.owned[i].second)));
    if (saved_elsewhere(stage, pieces.back().name)) pieces.back().holder = kNotTheWriter;
  }
  return pieces;
}

void add_sharded(std::vector<StatePiece>& state, const PipelineStage& stage,
                 const std::vector<optim::NamedTensor>& optimizer, const PieceSource& source) {
  for (StatePiece& piece : sharded_state(source, optimizer)) {
    const size_t slash = piece.name.find('/');
    if (piece.is_list())
      place_in_model(piece, stage, source);
    else if (saved_elsewhere(stage, piece.name.substr(slash + 1)))
      piece.holder = kNotTheWriter;
    state.push_back(std::move(piece));
  }
}

}  // namespace

std::vector<StatePiece> stage_state(const PipelineStage& stage,
                                    const std::vector<optim::NamedTensor>& optimizer,
                                    const PartShards& shards) {
  std::vector<StatePiece> state;
  std::map<std::string, StatePiece> parameters;
  std::vector<int64_t> places;  // of the stage's trained parameters among all of the model's
  int64_t all = 0;
  for (const OwnedTensor& one : stage.tensors) {
    if (one.held_by(stage.place.stage) && !(one.is_parameter && shards.fully != nullptr)) {
      state.push_back(piece_of(stage, one));
      if (one.is_trained()) {
        parameters[one.name] = state.back();
        places.push_back(all);
      }
    }
    all += one.is_trained() ? 1 : 0;
  }
  if (shards.fully != nullptr) {
    auto value = [](const torch::Tensor& own) { return own.detach(); };
    for (const PieceSource& source : {shards.fully->pieces(), shards.fully->frozen_pieces()})
      for (StatePiece& piece : pieces_with(stage, source, value)) state.push_back(std::move(piece));
  }
  if (shards) {
    add_sharded(state, stage, optimizer, shards.source());
    return state;
  }
  for (const auto& [name, tensor] : optimizer) {
    const size_t slash = name.find('/');
    StatePiece piece;
    if (slash == std::string::npos) {
      piece.shape = {all};
      piece.places = places;
    } else {
      auto found = parameters.find(name.substr(slash + 1));
      YOKE_CHECK(found != parameters.end(), "the stage has no parameter '{}'", name.substr(slash + 1));
      piece = found->second;
    }
    piece.name = name;
    piece.kind = StatePiece::Kind::kOptimizer;
    piece.values = tensor;
    state.push_back(std::move(piece));
  }
  return state;
}

std::vector<StatePiece> stage_gradients(const PipelineStage& stage, const PartShards& shards) {
  if (shards) return pieces_with(stage, shards.source(), [](const torch::Tensor& own) { return own.grad(); });
  std::vector<StatePiece> gradients;
  for (const OwnedTensor& one : stage.tensors) {
    if (!one.is_trained() || !one.held_by(stage.place.stage)) continue;
    gradients.push_back(piece_of(stage, one));
    gradients.back().values = one.tensor.grad();
  }
  return gradients;
}

}  // namespace yoke::parallel
