// The half of PsStrategy that moves parameters and gradients while it computes.
//
//   forward  block 0, block 1, …   each waits for its own ranges; before the loss for all of them
//   loss     announce              under `sync`: the scheduler may assign the next minibatch
//   backward                       ranges leave as they are complete, and return with their new values
//   commit                         waits for the scheduler only
#include <algorithm>
#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"

namespace yoke::parallel {

// A gradient that was announced is owed, so it is only announced early where it surely counts. Under rules
// that do not wait for all workers, others would wait for what is being computed; a step that may be skipped,
// or is delayed artificially, must end first.
void PsStrategy::begin_overlap() {
  if (!setup_.ps.overlap || in_parts() || rows_ || parameters_.empty()) return;
  Overlap::Moves moves;
  moves.gather = [this](size_t parameter) { gather_gradient(parameter); };
  if (!in_place()) moves.deliver = [this](size_t parameter) { deliver_parameter(parameter); };
  overlap_ = std::make_unique<Overlap>(model_, parameters_, *learner_, copies_, std::move(moves));
  const bool delayed = setup_.slowdown.law != "none" || setup_.slowdown.link != "none";
  announces_ = setup_.policy.rule == plan::Rule::kSync && !setup_.skip_non_finite && !scales() && !delayed &&
               setup_.ps.stale_step != "distance";
  watched_ = overlapped(std::move(watched_));
}

models::Model PsStrategy::overlapped(models::Model model) {
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    models::Block& block = model.blocks[i];
    block.forward = [this, i, forward = block.forward](const models::Tensors& inputs) {
      await_block(i);
      return forward(inputs);
    };
  }
  model.loss = [this, loss = model.loss](const models::Tensors& outputs, const torch::Tensor& target) {
    torch::Tensor result = loss(outputs, target);
    before_backward(result);
    return result;
  };
  return model;
}

void PsStrategy::await_block(size_t block) {
  if (!pulling_) return;
  const double begin = now_seconds();
  overlap_->await_block(block);
  exposed_since(begin);
}

// Whether the parameters are those of the current work, now that all have arrived.
bool PsStrategy::finish_pull() {
  if (!std::exchange(pulling_, false)) return pulled_;
  const double begin = now_seconds();
  pulled_ = overlap_->end_pull();
  exposed_since(begin);
  const ps::Learner::Span flight = learner_->last_flight();
  count_flight(flight.end);
  talk_.buckets.push_back({flight.begin, flight.end});
  return pulled_;
}

// A flight belongs to two steps: each counts its own part.
void PsStrategy::count_flight(double until) {
  const double from = std::max(learner_->last_flight().begin, flight_counted_);
  talk_.seconds += std::max(0.0, until - from);
  flight_counted_ = std::max(flight_counted_, until);
}

void PsStrategy::before_backward(const torch::Tensor& loss) {
  if (!finish_pull()) throw Voided{};
  const MicroBatch& micro = computing_->micro;
  // The announcement names the learning rate; a caller may tell it in commit() only.
  if (!announces_ || !micro.last || micro.lr <= 0) return;
  // As OneDevice returns it.
  const double value = loss_ + (loss.detach() * micro.weight / micro.weight).item<double>() * micro.weight;
  if (std::isfinite(value)) announce(value);
}

void PsStrategy::announce(double loss) {
  ps::Gradient told;
  told.data = gradients_.const_data_ptr();
  told.loss = loss;
  told.lr = computing_->micro.lr;
  told.compute_seconds = last_compute_seconds_;
  told.measure = computing_->micro.measures;
  for (const Kept& batch : batches_) samples_ += batch.target.size(0);
  told.samples = std::exchange(samples_, 0);
  overlap_->begin_backward(told, flat_.mutable_data_ptr());
}

// Waits for the next minibatch; its parameters arrive while it is computed.
void PsStrategy::pull_work() {
  const double begin = now_seconds();
  over_ = over_ || !learner_->wait();
  if (pulling_)
    exposed_since(begin);  // ranges are in flight meanwhile
  else
    waited_since(begin);
  if (over_) {
    find_work();
    return;
  }
  take_scale();
  pulling_ = true;
  overlap_->begin_pull(flat_.mutable_data_ptr());
}

// The gradient was announced before backward, and most of it has left.
CommitResult PsStrategy::commit_announced(const CommitOptions& commit) {
  CommitResult result;
  last_compute_seconds_ = compute_seconds_;
  result.updated = overlap_->end_backward();
  if (!result.updated) return result;  // acquire() refuses another step
  skipped_ = 0;
  ++minibatches_;
  const double begin = now_seconds();
  learner_->end_push();
  exposed_since(begin);
  pulling_ = true;
  pull_work();
  if (commit.measure_norm && !finish_pull()) find_work();
  if (pulling_) count_flight(now_seconds());
  tell_loss();
  if (!pulling_) note_update_norm(commit, result);
  return result;
}

}  // namespace yoke::parallel
