#include "yoke/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/parallel/looks_ahead.h"
#include "yoke/parallel/takes_batches.h"

namespace yoke::engine {
namespace {

// Consecutive steps without an update: after kStuck nothing is saved before the next update (the state itself
// may be the cause, and saving would evict a good checkpoint), after kMostSkipped the run ends.
constexpr int64_t kStuck = 10;
constexpr int64_t kMostSkipped = 100;
// With a loss scale, once it is at its floor: from 65536 it takes 16 overflows to get there.
constexpr int64_t kMostOverflows = 32;

// Communication inside commit() was timed as update: moves it to where it belongs. Returns seconds in flight.
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

void Engine::resume_at(int64_t step, int64_t samples, double loss) {
  note_loss(loss);
  step_ = step;
  step_before_ = step;
  samples_ = samples;
  samples_at_start_ = samples;
  samples_at_record_ = samples;
  finished_ = {step, step, samples, outcome_.final_loss};
}

int Engine::wanted_stop() const {
  return plan_.wanted_stop ? plan_.wanted_stop() : requested_stop();
}

int Engine::agreed_stop(bool may_wait) {
  if (!plan_.agreed_stop) return stop_signal_;
  strategy_.drain();
  return plan_.agreed_stop(stop_signal_, may_wait);
}

Outcome Engine::run(const metrics::RunInfo& info) {
  try {
    return run_to_the_end(info);
  } catch (const std::exception& error) {
    if (!memory_report_ || !is_out_of_memory(error)) throw;
    throw memory_report_(error, evaluating_ ? fmt::format("in the evaluation after step {}", step_)
                                            : fmt::format("in step {}", step_ + 1));
  }
}

Outcome Engine::run_to_the_end(const metrics::RunInfo& info) {
  for (auto& sink : sinks_) sink->start(info);
  since_start_ = Stopwatch();
  since_record_ = Stopwatch();
  bool saved = false, decided = false;
  while (step_ < plan_.total_steps && stop_signal_ == 0 && !over_) {
    train_step();
    bool last = step_ >= plan_.total_steps;
    if (evaluate_ && (last || epoch_ended())) evaluate_now();
    if (passed(plan_.log_every) || last || last_evaluated_ == step_) log_step();
    saved = checkpoint_due_ && (last || (due_since_last_step() && not_updated_ < kStuck));
    if (saved) {
      Stopwatch watch;
      strategy_.drain();
      save_({step_, samples_, outcome_.final_loss, last});
      pause_seconds_ += watch.seconds();
    }
    if (stop_signal_ != 0 && !last) {
      stop_signal_ = agreed_stop(/*may_wait=*/true);
      decided = stop_signal_ != 0;
    }
  }
  strategy_.drain();
  // A stop signal may have arrived during an evaluation, or before the first step.
  if (stop_signal_ == 0) stop_signal_ = strategy_.agree({torch::zeros({}), wanted_stop()}).stop_signal;
  if (stop_signal_ != 0 && !decided) stop_signal_ = agreed_stop(/*may_wait=*/false);
  strategy_.settle();
  // A run that was stopped during its last evaluation repeats it now.
  if (evaluate_ && step_ >= plan_.total_steps && last_evaluated_ != step_ && stop_signal_ == 0)
    evaluate_now();
  outcome_.stopped_by_signal = stop_signal_;
  if (!losses_.empty()) log_step();
  const bool goes_on = stop_signal_ == kRegroup;  // in memory
  if (outcome_.stopped_by_signal != 0 && save_ && !saved && !goes_on)
    save_({step_, samples_, outcome_.final_loss, /*must=*/true});
  for (auto& sink : sinks_) sink->finish();
  outcome_.steps = step_;
  outcome_.samples = samples_;
  outcome_.own_samples = samples_ - samples_at_start_;
  outcome_.epochs = epoch();
  outcome_.seconds = since_start_.seconds();
  return outcome_;
}

void Engine::train_step() {
  fault::set_step(step_ + 1);
  finished_.started = step_ + 1;
  Stopwatch watch;
  metrics::TimeSplit split;
  double begin = now_seconds();
  epoch_before_ = epoch();
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
  Stopwatch since_first;
  for (int64_t i = 0; i < plan_.accumulate; ++i) {
    if (i > 0 && requested_stop() != 0) tell_that_it_stops(i, since_first.seconds());
    Stopwatch waiting;
    const bool handed_out = take_handed_out();
    data::Batch batch = loader_.next();
    split.data += waiting.seconds();
    if (i + 1 == plan_.accumulate && !handed_out) tell_upcoming();
    double weight = batch.weight / static_cast<double>(plan_.accumulate);
    parallel::ComputeResult result =
        strategy_.compute(batch.inputs, batch.target,
                          {weight, i + 1 == plan_.accumulate, plan_.learning_rate(step_), measures_norm()});
    split.forward += result.forward_seconds;
    split.backward += result.backward_seconds;
    samples_ += batch.global_samples;
    own_samples_ += batch.samples;
    torch::Tensor part = result.loss * weight;
    loss.sum = loss.sum.defined() ? loss.sum + part : part;
  }
  parallel::StepNews news = strategy_.agree({loss.sum, wanted_stop()});
  loss.sum = news.loss;
  stop_signal_ = news.stop_signal;
  if (plan_.wait_for_loss) loss.finite = std::isfinite(loss.sum.item<double>());
  return loss;
}

// Whether somebody else decides which batch is next.
bool Engine::take_handed_out() {
  auto* strategy = dynamic_cast<parallel::TakesBatches*>(&strategy_);
  const std::optional<int64_t> batch = strategy != nullptr ? strategy->next_batch() : std::nullopt;
  if (batch) loader_.seek(loader_.after(plan_.first_position, *batch));
  return batch.has_value();
}

void Engine::tell_upcoming() {
  auto* strategy = dynamic_cast<parallel::LooksAhead*>(&strategy_);
  if (strategy == nullptr) return;
  if (const std::vector<torch::Tensor> inputs = loader_.peek(); !inputs.empty()) strategy->upcoming(inputs);
}

// A step is never abandoned halfway: its changes to BatchNorm statistics and random states could not be
// undone, and a resumed run would differ.
void Engine::tell_that_it_stops(int64_t done, double seconds) {
  if (std::exchange(told_stop_, true)) return;
  int64_t left = plan_.accumulate - done;
  log::info("stopping after this step: {} of {} batches left, about {}; press Ctrl-C again to stop at once",
            left, plan_.accumulate,
            format_duration(seconds * static_cast<double>(left) / static_cast<double>(done)));
}

// Gradients are checked before anything of this step reaches a record or a checkpoint. With a loss scale,
// overflows are always checked.
bool Engine::measures_norm() const {
  const int64_t next = step_ + 1;
  return (plan_.skip_non_finite && !strategy_.loss_scale()) || next % plan_.log_every == 0 ||
         next == plan_.total_steps || (checkpoint_due_ && checkpoint_due_(next));
}

bool Engine::commit(const StepLoss& loss, metrics::TimeSplit& split) {
  if (before_update_) before_update_();
  if (!loss.finite) return handle_non_finite("the loss", step_ + 1);
  Stopwatch watch;
  const bool scaled = strategy_.loss_scale().has_value();
  parallel::CommitResult result = strategy_.commit({plan_.learning_rate(step_), measures_norm()});
  split.update += watch.seconds();
  if (result.grad_norm) grad_norm_ = result.grad_norm;
  if (!result.updated) {
    strategy_.settle();
    if (!std::isfinite(loss.sum.item<double>())) return handle_non_finite("the loss", step_ + 1);
    return scaled ? handle_overflow() : handle_non_finite("a gradient", step_ + 1);
  }
  not_updated_ = 0;
  return true;
}

bool Engine::handle_non_finite(const char* what, int64_t step) {
  std::string parameter = strategy_.first_non_finite_gradient().value_or("none, only the loss");
  constexpr const char* kAdvice = "Lower train.lr, set train.clip_norm";
  if (!plan_.skip_non_finite) {
    throw ConfigError(
        "step {}: {} is not finite (first parameter with a non-finite gradient: {}). It was not saved. {}, "
        "or train.non_finite = \"skip\".",
        step, what, parameter, kAdvice);
  }
  log::warn("step {}: {} is not finite (first parameter: {}); the step is skipped", step, what, parameter);
  if (++not_updated_ >= kMostSkipped)
    throw ConfigError("step {}: {} steps in a row were skipped because {} was not finite. {}.", step,
                      not_updated_, what, kAdvice);
  return false;
}

// fp16 overflows are part of the method: the scaler halves the scale.
bool Engine::handle_overflow() {
  bool at_floor = strategy_.loss_scale().value_or(0) <= optim::GradScalerOptions().min_scale;
  if (++not_updated_ < kMostOverflows || !at_floor) return false;
  throw ConfigError(
      "step {}: the gradients of {} steps in a row overflowed fp16, with a loss scale down to {}. They were "
      "not saved. Lower train.lr, set train.clip_norm, or use train.precision = \"bf16\" or \"fp32\".",
      step_ + 1, not_updated_, optim::GradScalerOptions().min_scale);
}

// Steps are counted here, or by the strategy; then one of ours may be several, or none.
void Engine::count_step() {
  step_before_ = step_;
  std::optional<parallel::Strategy::Progress> all = strategy_.progress();
  if (!all) {
    ++step_;
    finished_ = {step_, step_, samples_, outcome_.final_loss};
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

double Engine::epoch() const {
  if (!strategy_.progress())
    return static_cast<double>(loader_.batches_done()) / static_cast<double>(loader_.batches_per_epoch());
  return plan_.first_epoch +
         static_cast<double>((step_ - plan_.first_step) * plan_.accumulate) / plan_.batches_per_epoch;
}

bool Engine::epoch_ended() const {
  constexpr double kRounding = 1e-9;
  return std::floor(epoch() + kRounding) > std::floor(epoch_before_ + kRounding);
}

void Engine::evaluate_now() {
  Stopwatch watch;
  strategy_.drain();
  evaluating_ = true;
  if (auto evaluation = evaluate_()) {
    outcome_.evaluation = evaluation;
    last_evaluated_ = step_;
  }
  evaluating_ = false;
  pause_seconds_ += watch.seconds();
}

// Over the steps since the last record, without those skipped because of their loss, unless all were.
double Engine::mean_loss() const {
  double sum = 0;
  int64_t count = 0;
  for (const torch::Tensor& one : losses_) {
    auto loss = one.item<double>();
    if (plan_.skip_non_finite && !std::isfinite(loss)) continue;
    sum += loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

void Engine::note_loss(double loss) {
  if (!std::isfinite(loss) && has_loss_) return;
  outcome_.final_loss = loss;
  has_loss_ = std::isfinite(loss);
}

void Engine::log_step() {
  if (losses_.empty()) return;
  strategy_.settle();
  auto count = static_cast<double>(losses_.size());
  double loss = mean_loss();
  if (!std::isfinite(loss) && !plan_.skip_non_finite) handle_non_finite("the loss", step_);
  double seconds = std::max(1e-9, since_record_.seconds() - pause_seconds_);

  metrics::Record record;
  record.step = step_;
  record.epoch = epoch();
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

  note_loss(loss);
  losses_.clear();
  grad_norm_.reset();
  split_ = {};
  comm_seconds_.reset();
  pause_seconds_ = 0;
  since_record_ = Stopwatch();
  samples_at_record_ = samples_;
}

}  // namespace yoke::engine
