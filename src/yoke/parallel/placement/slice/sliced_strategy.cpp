#include "yoke/parallel/placement/slice/sliced_strategy.h"

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::parallel {

std::optional<StatePiece> piece_of_slice(StatePiece piece, const TensorSlice& slice) {
  piece.shape = slice.global_shape;
  piece.dim = slice.dim;
  for (const plan::CutRange& range : slice.ranges)
    if (range.size() > 0) piece.ranges.push_back({range.begin, range.size()});
  if (piece.ranges.empty()) return std::nullopt;
  return piece;
}

SlicedStrategy::SlicedStrategy(std::unique_ptr<Strategy> strategy, const TensorParallel& cut,
                               comm::Communicator& axis, comm::Communicator& world)
    : Forwarding(std::move(strategy)), cut_(cut), axis_(axis), world_(world) {}

// Ranks of the axis compute one loss; a signal may have reached one of them.
StepNews SlicedStrategy::agree(const StepNews& here) {
  StepNews all = inner->agree(here);
  torch::Tensor signal = torch::tensor({static_cast<int64_t>(all.stop_signal)}, torch::kInt64);
  comm::all_reduce(axis_, signal, ReduceOp::kMax, "stop");
  all.stop_signal = static_cast<int>(signal.item<int64_t>());
  return all;
}

Traffic SlicedStrategy::traffic() const {
  Traffic all = inner->traffic();
  all.tensor += axis_.counters().bytes_sent;
  return all;
}

DataShare SlicedStrategy::share() const {
  DataShare share = inner->share();
  share.together = true;
  return share;
}

RunEnd SlicedStrategy::finish(int64_t peak_memory) {
  RunEnd end = inner->finish(peak_memory);
  end.peak_memory = Strategy::finish(peak_memory).peak_memory;
  return end;
}

std::vector<StatePiece> SlicedStrategy::whole_coordinates(std::vector<StatePiece> pieces) const {
  std::vector<StatePiece> all;
  for (StatePiece& piece : pieces) {
    const size_t slash = piece.name.find('/');
    const bool list = piece.is_list();
    const TensorSlice* slice =
        list ? nullptr : &cut_.slice(slash == std::string::npos ? piece.name : piece.name.substr(slash + 1));
    if (slice != nullptr && !slice->replicated()) {
      if (auto part = piece_of_slice(std::move(piece), *slice)) all.push_back(std::move(*part));
      continue;
    }
    if (piece.holder >= 0) piece.holder = piece.holder * axis_.size() + axis_.rank();
    piece.holders *= axis_.size();
    all.push_back(std::move(piece));
  }
  return all;
}

// The first rank of the axis that knows of one names it.
std::optional<std::string> SlicedStrategy::first_non_finite_gradient() {
  std::optional<std::string> own = inner->first_non_finite_gradient();
  nlohmann::json told = own ? nlohmann::json(*own) : nlohmann::json();
  for (const nlohmann::json& one : gather_json(told, &axis_))
    if (one.is_string()) return one.get<std::string>();
  return std::nullopt;
}

}  // namespace yoke::parallel
