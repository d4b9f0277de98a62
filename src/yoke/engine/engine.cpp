#include "yoke/engine/engine.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/engine/stop_signal.h"

namespace yoke::engine {
namespace {

// What a step talked in commit(), where its time was counted as update: moved to where it belongs. Seconds
// under way.
double move_talk_of_commit(const std::optional<parallel::Communication>& before,
                           const std::optional<parallel::Communication>& all, metrics::TimeSplit& split) {
  if (!before || !all) return 0;
  double waited = std::clamp(all->exposed - before->exposed, 0.0, split.update);
  split.communication += waited;
  split.update -= waited;
  return std::max(0.0, all->seconds - before->seconds);
}

}  // namespace

Engine::Engine(parallel::Strategy& strategy, data::Loader& loader, LoopPlan plan)
    : strategy_(strategy), loader_(loader), plan_(std::move(plan)) {}

void Engine::attach_checkpoints(std::function<bool(int64_t)> due,
                                std::function<void(const SaveRequest&)> save) {
  checkpoint_due_ = std::move(due);
  save_ = std::move(save);
}

void Engine::resume_at(int64_t step, int64_t samples) {
  step_ = step;
  step_before_ = step;
  samples_ = samples;
  samples_at_start_ = samples;
  samples_at_record_ = samples;
}

Outcome Engine::run(const metrics::RunInfo& info) {
  StopSignals signals;
  for (auto& sink : sinks_) sink->start(info);
  since_start_ = Stopwatch();
  since_record_ = Stopwatch();
  bool saved = false;
  while (step_ < plan_.total_steps && stop_signal_ == 0 && !over_) {
    train_step();
    bool last = step_ >= plan_.total_steps;
    if (evaluate_ && (last || epoch_ended())) evaluate_now();
    if (passed(plan_.log_every) || last || last_evaluated_ == step_) log_step();
    saved = checkpoint_due_ && (last || due_since_last_step());
    if (saved) {
      Stopwatch watch;
      strategy_.drain();
      save_({step_, samples_, last});
      pause_seconds_ += watch.seconds();
    }
  }
  strategy_.drain();
  // Somebody may have been told to stop in an evaluation, or before the first step.
  if (stop_signal_ == 0) stop_signal_ = strategy_.agree({torch::zeros({}), requested_stop()}).stop_signal;
  strategy_.settle();
  // A run that was stopped in its last evaluation does it now.
  if (evaluate_ && step_ >= plan_.total_steps && last_evaluated_ != step_ && stop_signal_ == 0)
    evaluate_now();
  outcome_.stopped_by_signal = stop_signal_;
  if (outcome_.stopped_by_signal != 0 && save_ && !saved) save_({step_, samples_, /*must=*/true});
  if (!losses_.empty()) log_step();
  for (auto& sink : sinks_) sink->finish();
  outcome_.steps = step_;
  outcome_.samples = samples_;
  outcome_.seconds = since_start_.seconds();
  return outcome_;
}

void Engine::train_step() {
  Stopwatch watch;
  metrics::TimeSplit split;
  double begin = now_seconds();
  strategy_.acquire();
  StepLoss loss = compute_gradients(split);
  std::optional<parallel::Communication> talk = strategy_.communication();
  if (talk) {
    split.communication = talk->exposed;
    split.backward = std::max(0.0, split.backward - talk->exposed);
    comm_seconds_ = comm_seconds_.value_or(0) + talk->seconds;
  }
  if (balance_) balance_(std::exchange(own_samples_, 0), split.forward + split.backward);
  bool updated = commit(loss, split);
  if (talk) *comm_seconds_ += move_talk_of_commit(talk, strategy_.communication(), split);
  if (!updated) ++outcome_.skipped;
  count_step();
  double seconds = watch.seconds();
  losses_.push_back(loss.sum);
  split.other = std::max(
      0.0, seconds - split.data - split.forward - split.backward - split.communication - split.update);
  split_.data += split.data;
  split_.forward += split.forward;
  split_.backward += split.backward;
  split_.communication += split.communication;
  split_.update += split.update;
  split_.other += split.other;
  outcome_.step_seconds.push_back(seconds);
  if (trace_ != nullptr) {
    trace_->add({fmt::format("step {}", step_), "step", "steps", begin, seconds});
    double at = begin;
    const std::pair<const char*, double> parts[] = {{"data", split.data},
                                                    {"forward", split.forward},
                                                    {"backward", split.backward},
                                                    {"wait for gradients", split.communication},
                                                    {"update", split.update}};
    for (const auto& [name, length] : parts) {
      if (length > 0) trace_->add({name, "compute", "main", at, length});
      at += length;
    }
    for (size_t i = 0; talk && i < talk->buckets.size(); ++i) {
      const auto& [started, ended] = talk->buckets[i];
      if (ended > 0)
        trace_->add({fmt::format("bucket {}", i), "comm", "communication", started, ended - started});
    }
  }
  double rate = static_cast<double>(samples_ - samples_at_record_) /
                std::max(1e-9, since_record_.seconds() - pause_seconds_);
  for (auto& sink : sinks_) sink->tick(step_, rate);
}

Engine::StepLoss Engine::compute_gradients(metrics::TimeSplit& split) {
  StepLoss loss;
  for (int64_t i = 0; i < plan_.accumulate; ++i) {
    Stopwatch waiting;
    data::Batch batch = loader_.next();
    split.data += waiting.seconds();
    double weight = batch.weight / static_cast<double>(plan_.accumulate);
    parallel::ComputeResult result = strategy_.compute(
        batch.inputs, batch.target, {weight, i + 1 == plan_.accumulate, plan_.learning_rate(step_)});
    split.forward += result.forward_seconds;
    split.backward += result.backward_seconds;
    samples_ += batch.global_samples;
    own_samples_ += batch.samples;
    torch::Tensor part = result.loss * weight;
    loss.sum = loss.sum.defined() ? loss.sum + part : part;
  }
  parallel::StepNews news = strategy_.agree({loss.sum, requested_stop()});
  loss.sum = news.loss;
  stop_signal_ = news.stop_signal;
  if (plan_.wait_for_loss) loss.finite = std::isfinite(loss.sum.item<double>());
  return loss;
}

bool Engine::commit(const StepLoss& loss, metrics::TimeSplit& split) {
  if (!loss.finite && !strategy_.loss_scale()) return handle_non_finite("the loss");
  Stopwatch watch;
  int64_t next = step_ + 1;
  // Gradients are checked before anything of this step can reach a record or a checkpoint.
  bool measure =
      next % plan_.log_every == 0 || next == plan_.total_steps || (checkpoint_due_ && checkpoint_due_(next));
  parallel::CommitResult result = strategy_.commit({plan_.learning_rate(step_), measure});
  split.update += watch.seconds();
  if (result.grad_norm) grad_norm_ = result.grad_norm;
  // With a loss scale an overflow is part of the method: the scaler halves and goes on.
  if (!result.updated && !strategy_.loss_scale()) return handle_non_finite("a gradient");
  return result.updated;
}

bool Engine::handle_non_finite(const char* what) {
  std::string parameter = strategy_.first_non_finite_gradient().value_or("none; the loss alone");
  if (!plan_.skip_non_finite) {
    throw ConfigError(
        "step {}: {} is not finite (first parameter with a non-finite gradient: {}). Parameters and "
        "checkpoints are as "
        "before this step. Lower train.lr, set train.clip_norm, or train.non_finite = \"skip\".",
        step_ + 1, what, parameter);
  }
  log::warn("step {}: {} is not finite (first parameter: {}); the step is skipped", step_ + 1, what,
            parameter);
  return false;
}

// Steps are counted here, or by who hands out the work; then one of ours may be several, or none.
void Engine::count_step() {
  step_before_ = step_;
  std::optional<parallel::Strategy::Progress> all = strategy_.progress();
  if (!all) {
    ++step_;
    return;
  }
  samples_ = samples_at_start_ + all->samples;
  step_ = all->step;
  over_ = all->over;
}

bool Engine::passed(int64_t every) const {
  return step_ / every > step_before_ / every;
}

bool Engine::due_since_last_step() const {
  for (int64_t step = step_before_ + 1; step <= step_; ++step) {
    if (checkpoint_due_(step)) return true;
  }
  return false;
}

bool Engine::epoch_ended() const {
  auto batches = static_cast<double>(step_ * plan_.accumulate);
  auto before = static_cast<double>(step_before_ * plan_.accumulate);
  return std::floor(batches / plan_.batches_per_epoch) > std::floor(before / plan_.batches_per_epoch);
}

void Engine::evaluate_now() {
  Stopwatch watch;
  strategy_.drain();
  if (auto evaluation = evaluate_()) {
    outcome_.evaluation = evaluation;
    last_evaluated_ = step_;
  }
  pause_seconds_ += watch.seconds();
}

void Engine::log_step() {
  if (losses_.empty()) return;
  strategy_.settle();
  auto count = static_cast<double>(losses_.size());
  double loss = 0;
  for (const torch::Tensor& one : losses_) loss += one.item<double>() / count;
  if (!std::isfinite(loss) && !plan_.skip_non_finite && !plan_.wait_for_loss && !strategy_.loss_scale())
    handle_non_finite("the loss");
  double seconds = std::max(1e-9, since_record_.seconds() - pause_seconds_);

  metrics::Record record;
  record.step = step_;
  record.epoch = static_cast<double>(step_ * plan_.accumulate) / plan_.batches_per_epoch;
  record.time = since_start_.seconds();
  record.loss = loss;
  record.lr = plan_.learning_rate(std::max<int64_t>(0, step_ - 1));
  record.samples = samples_;
  record.samples_per_s = static_cast<double>(samples_ - samples_at_record_) / seconds;
  if (plan_.tokens_per_sample > 0)
    record.tokens_per_s = record.samples_per_s * static_cast<double>(plan_.tokens_per_sample);
  record.grad_norm = grad_norm_;
  record.loss_scale = strategy_.loss_scale();
  record.noise_scale = strategy_.noise_scale();
  if (comm_seconds_) record.comm_seconds = *comm_seconds_ / count;
  if (plan_.peak_memory) record.memory_bytes = plan_.peak_memory();
  if (last_evaluated_ == step_ && outcome_.evaluation) {
    record.accuracy = outcome_.evaluation->accuracy;
    record.eval_loss = outcome_.evaluation->loss;
  }
  record.split =
      metrics::TimeSplit{split_.data / count,          split_.forward / count, split_.backward / count,
                         split_.communication / count, split_.update / count,  split_.other / count};
  for (auto& sink : sinks_) sink->write(record);

  outcome_.final_loss = loss;
  losses_.clear();
  grad_norm_.reset();
  split_ = {};
  comm_seconds_.reset();
  pause_seconds_ = 0;
  since_record_ = Stopwatch();
  samples_at_record_ = samples_;
}

}  // namespace yoke::engine
