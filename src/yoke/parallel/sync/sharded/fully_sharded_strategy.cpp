#include "yoke/parallel/sync/sharded/fully_sharded_strategy.h"

#include "yoke/optim/averaging.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/common/part_shards.h"
#include "yoke/parallel/common/step_news.h"
#include "yoke/parallel/placement/sharded/sharded_units.h"
#include "yoke/parallel/sync/sharded/sharded_state.h"

namespace yoke::parallel {

FullyShardedStrategy::FullyShardedStrategy(const models::Model& model, optim::Optimizer& optimizer,
                                           optim::GradScaler& scaler, OneDeviceOptions options,
                                           FullyShard& fully)
    : fully_(fully),
      model_(fully.wrap(model)),
      where_(options.device),
      device_(model_, optimizer, scaler, options),
      optimizer_(optimizer),
      gradients_(fully.pieces(), optimizer, scaler, options) {}

void FullyShardedStrategy::acquire() {
  device_.acquire();
  computed_ = 0;
  communication_ = {};
  fully_.units().take_times();
}

ComputeResult FullyShardedStrategy::compute(const std::vector<torch::Tensor>& inputs,
                                            const torch::Tensor& target, const MicroBatch& micro) {
  ComputeResult result;
  try {
    compute::GradientHomes::Use homes(fully_.units().homes());
    result = device_.compute(inputs, target, micro);
  } catch (...) {
    fully_.units().fail(/*sent=*/computed_ > 0);
    throw;
  }
  ++computed_;
  note_times(fully_, communication_);
  return result;
}

StepNews FullyShardedStrategy::agree(const StepNews& here) {
  return reduce_news(here, fully_.comm(), where_, fully_.comm().size());
}

void FullyShardedStrategy::share_buffers() {
  if (fully_.comm().size() > 1) give_values(distinct_buffers(*model_.module), fully_.comm(), 0);
}

void FullyShardedStrategy::begin(int64_t) {
  fully_.comm().barrier({.name = "start"}).wait();
}

std::vector<torch::Tensor> FullyShardedStrategy::forward(const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> outputs = device_.forward(inputs);
  fully_.release();
  return outputs;
}

// Where shards lie in memory of all ranks, nobody may compute with them while they change.
bool FullyShardedStrategy::exchange_average() {
  fully_.release();
  fully_.comm().barrier({.name = "moving average"}).wait();
  if (!optim::exchange_average(optimizer_)) return false;
  fully_.units().moved();
  fully_.comm().barrier({.name = "moving average"}).wait();
  return true;
}

std::vector<StatePiece> FullyShardedStrategy::shard() {
  const PieceSource source = fully_.pieces();
  std::vector<StatePiece> pieces;
  for (const PieceSource& own : {source, fully_.frozen_pieces()})
    for (size_t i = 0; i < own.pieces.size(); ++i)
      pieces.push_back(piece_of(own, i, StatePiece::Kind::kParameter, own.owned[i].second.detach()));
  for (StatePiece& one : sharded_state(source, optimizer_.state())) pieces.push_back(std::move(one));
  return pieces;
}

std::vector<StatePiece> FullyShardedStrategy::state() {
  std::vector<StatePiece> pieces = shard();
  NamedTensors buffers;
  for (const auto& item : model_.module->named_buffers()) buffers.emplace_back(item.key(), item.value());
  for (StatePiece& one : whole_state({}, buffers, {}, fully_.comm().rank(), fully_.comm().size()))
    pieces.push_back(std::move(one));
  return pieces;
}

}  // namespace yoke::parallel
