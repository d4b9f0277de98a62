#include "yoke/parallel/sync/servers/ps_strategy.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/kernels/clip_factor.h"
#include "yoke/optim/clip.h"
#include "yoke/parallel/common/step_news.h"
#include "yoke/parallel/sync/servers/flat_parts.h"

namespace yoke::parallel {
namespace {

// Of a worker, in a row: the servers wait for it, and its own steps are none.
constexpr int64_t kMostSkipped = 100;

bool in_step(const plan::PolicyOptions& policy) {
  return policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
}

}  // namespace

PsStrategy::PsStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                       OneDeviceOptions options, PsSetup setup)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(std::move(options)),
      setup_(std::move(setup)),
      copies_(options_.device),
      delays_(setup_) {
  std::vector<models::KeyedParameter> keyed;
  if (setup_.sparse) keyed = models::keyed_parameters(model);
  if (keyed.empty() && setup_.ps.sparse == "on")
    throw ConfigError(
        "ps.sparse = \"on\": model '{}' has no parameter whose rows samples name, such as an embedding with "
        "sparse gradients.",
        model.name);
  auto in_table = [&](const torch::Tensor& tensor) {
    return std::any_of(keyed.begin(), keyed.end(),
                       [&](const auto& one) { return one.tensor.is_same(tensor); });
  };
  std::vector<optim::NamedTensor> all;
  for (const auto& item : model.module->named_parameters())
    if (!in_table(item.value()) && item.value().requires_grad()) all.emplace_back(item.key(), item.value());
  layout_ = std::make_unique<ReplicaLayout>(all, whole_state(all, {}, {}), nullptr);
  lay_out();
  open_servers();
  if (!keyed.empty())
    rows_ = std::make_unique<SparseRows>(
        std::move(keyed), setup_, *learner_,
        flat_.scalar_type() == torch::kFloat64 ? DataType::kFloat64 : DataType::kFloat32);
  watched_ = watched(model);
  begin_overlap();
  compute_ = std::make_unique<OneDevice>(watched_, optimizer_, scaler, options_);
}

PsStrategy::PsStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                       OneDeviceOptions options, PsSetup setup, std::unique_ptr<Strategy> compute,
                       std::vector<optim::NamedTensor> parameters)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(std::move(options)),
      setup_(std::move(setup)),
      copies_(options_.device),
      compute_(std::move(compute)),
      delays_(setup_) {
  layout_ = std::make_unique<ReplicaLayout>(parameters, compute_->state(), setup_.replica);
  lay_out();
  open_servers();
}

PsStrategy::~PsStrategy() = default;

void PsStrategy::open_servers() {
  ps::LearnerOptions learner;
  learner.workers = setup_.workers;
  learner.workers_at_start = setup_.workers_at_start;
  learner.servers = setup_.places > 0 ? setup_.places : static_cast<int>(setup_.ps.servers);
  learner.at_start = setup_.at_start;
  learner.replicas = static_cast<int>(setup_.ps.replicas);
  learner.machines = setup_.machines;
  learner.tensors = layout_->tensors();
  learner.type = flat_.scalar_type() == torch::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  learner.range_bytes = setup_.ps.range_bytes;
  learner.timeout = setup_.timeout;
  learner.one_version = in_step(setup_.policy);
  learner.measure_distance = setup_.ps.stale_step == "distance";
  learner.ranks = setup_.ranks;
  learner.packing = setup_.packing;
  if (in_parts()) learner.replica = replica_links();
  learner_ = std::make_unique<ps::Learner>(*setup_.messenger, std::move(learner));
}

// Parameters become views of one piece of memory, so that they are pulled to where they are used. Those of a
// part stay where the strategy that computes has them.
void PsStrategy::lay_out() {
  torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : layout_->owned()) parameters_.push_back(parameter);
  // A part without parameters has the type of the whole model.
  auto type = model_.module->parameters().front().scalar_type() == torch::kFloat64 ? torch::kFloat64
                                                                                   : torch::kFloat32;
  const int64_t elements = layout_->end() - layout_->begin();
  // Pinned, where a GPU copies to and from them beside its work.
  const auto host = torch::TensorOptions(type).pinned_memory(!options_.device.is_cpu());
  flat_ = torch::empty({elements}, host);
  gradients_ = torch::zeros({elements}, host);
  gradient_parts_ = flat_parts(gradients_, parameters_);
  parameter_parts_ = flat_parts(flat_, parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameter_parts_[i].copy_(parameters_[i]);
    if (!in_place()) continue;
    parameters_[i].set_data(parameter_parts_[i]);
    homes_.set(parameters_[i], gradient_parts_[i]);
  }
}

// Not once the gradient was announced: what is released meanwhile is the next minibatch.
void PsStrategy::stop_if_void() const {
  if (!learner_->is_pushing() && learner_->cancelled()) throw Voided{};
}

// The model, looking between its blocks whether the minibatch still counts.
models::Model PsStrategy::watched(const models::Model& model) {
  models::Model copy = model;
  if (!plan::traits_of(setup_.policy.rule).cancels) return copy;
  for (models::Block& block : copy.blocks) {
    block.forward = [this, forward = block.forward](const models::Tensors& inputs) {
      stop_if_void();
      models::Tensors outputs = forward(inputs);
      for (torch::Tensor& output : outputs) {
        if (output.requires_grad()) output.register_hook([this](const torch::Tensor&) { stop_if_void(); });
      }
      return outputs;
    };
  }
  return copy;
}

void PsStrategy::begin(int64_t total_steps) {
  setup_.updates = total_steps;
  join_run();
}

void PsStrategy::join_run() {
  if (std::exchange(begun_, true)) return;
  if (is_first()) {
    if (!in_place()) download(flat_, parameters_);
    auto arrays = optimizer_arrays();
    if (!parameters_.empty() && static_cast<int64_t>(arrays.size()) != learner_->state_arrays())
      throw ConfigError("the servers' optimizer keeps {} arrays, the checkpoint's {}: they are not the same.",
                        learner_->state_arrays(), arrays.size());
    learner_->assign(0, flat_.const_data_ptr(), start_version_, start_version_);
    if (rows_) rows_->assign(optimizer_, start_version_);
    for (size_t i = 0; i < arrays.size(); ++i) {
      torch::Tensor array = torch::empty_like(flat_);
      download(array, arrays[i].second);
      learner_->assign(static_cast<int64_t>(i) + 1, array.const_data_ptr(), start_version_, start_version_);
    }
  }
  ps::ScaleHead scale;
  if (is_first() && shares_scale())
    scale = {static_cast<float>(scaler_.current_scale()), static_cast<int32_t>(scaler_.growth_tracker())};
  learner_->join(is_first() ? setup_.updates : 0, scale);
  find_work();
  heard_losses_ = losses_so_far();
}

PsStrategy::Losses PsStrategy::losses_so_far() const {
  if (over_) return {learner_->end().losses, learner_->end().loss_sum};
  return {learner_->work().losses, learner_->work().loss_sum};
}

// The loss of a step is the mean over the gradients of all workers since the step before; of this worker
// alone where there were none.
void PsStrategy::tell_loss() {
  Losses now = losses_so_far(), before = std::exchange(heard_losses_, now);
  if (now.count <= before.count || !told_loss_.defined() || !std::isfinite(loss_)) return;
  told_loss_.fill_((now.sum - before.sum) / static_cast<double>(now.count - before.count));
}

void PsStrategy::acquire() {
  join_run();
  if (learner_->is_pushing())
    throw CommError(
        "worker {}: its last step failed when parts of its gradient had been pushed. They cannot be taken "
        "back: resume from the last checkpoint.",
        setup_.messenger->rank());
  if (skipped_++ > kMostSkipped)
    throw ConfigError(
        "worker {}: {} minibatches in a row were not finite, so nothing was pushed. Lower train.lr.",
        setup_.messenger->rank(), kMostSkipped);
  talk_ = {};
  compute_->acquire();
  take_fetched(/*must=*/false);
  if (rows_) rows_->begin_step();
  for (const torch::Tensor& parameter : parameters_) homes_.arrived(parameter);
  batches_.clear();
  taken_ = 0;
  loss_ = 0;
  compute_seconds_ = 0;
}

// One that did not count is computed again.
std::optional<int64_t> PsStrategy::next_batch() {
  if (setup_.ps.max_workers == 0) return std::nullopt;
  return learner_->work().batch() * setup_.accumulate + taken_++;
}

// Waits for the next minibatch and brings the parameters to its version. False: the run is over.
bool PsStrategy::find_work() {
  finish_pull();
  take_fetched(/*must=*/true);
  double begin = now_seconds();
  while (!over_) {
    over_ = !learner_->wait();
    if (!over_ && learner_->pull(flat_.mutable_data_ptr())) break;
  }
  pulled_ = true;
  take_scale();
  if (over_) learner_->pull_at(learner_->end().version, flat_.mutable_data_ptr());
  if (over_ && rows_) rows_->pull_all(learner_->end().version);
  upload();
  waited_since(begin);
  return !over_;
}

// Nothing is computed while a worker talks: all of it is waited for.
void PsStrategy::waited_since(double begin) {
  talk_.seconds += now_seconds() - begin;
  exposed_since(begin);
}

void PsStrategy::exposed_since(double begin) {
  talk_.exposed += now_seconds() - begin;
}

void PsStrategy::upload() {
  if (in_place()) return;
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(parameter_parts_[i]);
  layout_->spread();
}

void PsStrategy::download(const torch::Tensor& flat, const std::vector<torch::Tensor>& from) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts = flat_parts(flat, parameters_);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(from[i]);
}

// Under rules whose updates consume gradients of one version, an update since then has voided the minibatch.
void PsStrategy::pull_rows(const Kept& batch) {
  const double begin = now_seconds();
  const bool exact = rows_->pull(learner_->work().version, batch.inputs);
  waited_since(begin);
  if (!exact && in_step(setup_.policy)) throw Voided{};
}

// Under rules with one version for all, the next minibatch is of the next version: the servers answer once
// they have it, with what this worker pushes included. Other rules would give older rows than a later pull.
void PsStrategy::upcoming(const std::vector<torch::Tensor>& inputs) {
  if (!rows_ || !begun_ || over_ || !in_step(setup_.policy)) return;
  const int64_t next = learner_->work().version + 1;
  if (next < setup_.updates) rows_->pull_ahead(next, inputs);
}

ComputeResult PsStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                  const MicroBatch& micro) {
  const double waited_before = talk_.exposed;
  learner_->say_alive();
  if (!last_loss_.defined()) last_loss_ = torch::zeros({});
  batches_.push_back({inputs, target, micro});
  ComputeResult result{last_loss_, 0, 0};
  compute::GradientHomes::Use homes(homes_);
  for (size_t i = batches_.size() - 1; i < batches_.size() && !over_;) {
    try {
      if (rows_) pull_rows(batches_[i]);
      computing_ = &batches_[i];
      const double exposed_before = talk_.exposed;
      Stopwatch watch;
      result = compute_->compute(batches_[i].inputs, batches_[i].target, batches_[i].micro);
      const double waited = talk_.exposed - exposed_before;
      result.forward_seconds = std::max(0.0, result.forward_seconds - waited);
      compute_seconds_ += watch.seconds() - waited;
      if (!in_parts()) loss_ += result.loss.item<double>() * batches_[i].micro.weight;
      if (batches_[i].micro.last && learner_->leads()) {
        double delay = delays_.compute.next(compute_seconds_);
        if (delay > 0 && !learner_->sleep(delay) && !in_parts()) throw Voided{};
        compute_seconds_ += delay;
        if (const double late = delays_.link.next(0); late > 0 && !learner_->sleep(late) && !in_parts())
          throw Voided{};
      }
      ++i;
    } catch (const Voided&) {
      // All of it again, on what is current.
      find_work();
      optimizer_.zero_grad();
      for (const torch::Tensor& parameter : parameters_) homes_.arrived(parameter);
      loss_ = 0;
      compute_seconds_ = 0;
      i = 0;
    }
  }
  last_loss_ = result.loss;
  // As with other strategies, what backward waits for is part of it.
  result.backward_seconds += talk_.exposed - waited_before;
  return result;
}

StepNews PsStrategy::agree(const StepNews& here) {
  // Over the ranks of this worker, or over all workers.
  StepNews news = setup_.team == nullptr
                      ? compute_->agree(here)
                      : reduce_news(here, *setup_.team, options_.device, static_cast<double>(setup_.workers));
  if (in_parts()) loss_ = news.loss.item<double>();
  news.loss = told_loss_ = news.loss.clone();  // until commit() knows that of all
  if (over_) tell_loss();
  if (is_late()) {
    if (news.stop_signal != 0 && asked_stop_ == 0 && begun_ && !over_) ask_to_leave(news.stop_signal);
    news.stop_signal = 0;
  }
  if (news.stop_signal != 0 && asked_stop_ == 0 && begun_ && !over_ && setup_.team == nullptr) {
    asked_stop_ = news.stop_signal;
    if (learner_->leads()) learner_->ask_stop(news.stop_signal);
  }
  if (over_ && learner_->ended() && learner_->end().signal != 0)
    news.stop_signal = static_cast<int>(learner_->end().signal);
  return news;
}

// Brings it to its place in gradients_: on a GPU, once a mark of copies_ says so.
void PsStrategy::gather_gradient(size_t parameter) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& gradient = parameters_[parameter].grad();
  torch::Tensor& place = gradient_parts_[parameter];
  if (!gradient.defined())
    place.zero_();
  else if (gradient.is_sparse())
    place.copy_(gradient.to_dense());
  else if (gradient.const_data_ptr() != place.const_data_ptr())
    copies_.copy(place, gradient);
}

// On the device, behind what reads the value so far.
void PsStrategy::deliver_parameter(size_t parameter) {
  torch::NoGradGuard no_grad;
  parameters_[parameter].copy_(parameter_parts_[parameter], /*non_blocking=*/true);
}

// Downpour: the replica moves its own copy too, and what it has seen is told later.
void PsStrategy::local_step(double lr) {
  torch::NoGradGuard no_grad;
  if (!accrued_.defined()) accrued_ = torch::zeros_like(flat_);
  accrued_.add_(gradients_);
  flat_.add_(gradients_, -lr);
  upload();
}

// The norm of this worker's own gradient, where nobody knows that of an update. What clips it by itself.
double PsStrategy::measure_own(const CommitOptions& commit, CommitResult& result) {
  if (options_.clip_norm <= 0 && !commit.measure_norm) return 1;
  std::vector<torch::Tensor> all = parameters_;
  for (const torch::Tensor& one : rows_ ? rows_->tensors() : std::vector<torch::Tensor>()) all.push_back(one);
  double norm = all.empty() ? 0 : optim::clip_grad_norm(all, /*max_norm=*/0).item<double>();
  if (in_parts()) norm = std::sqrt(sum_over_ranks(norm * norm));
  if (commit.measure_norm) result.grad_norm = norm;
  result.updated = std::isfinite(norm);
  return options_.clip_norm > 0 ? kernels::clip_factor(norm, options_.clip_norm) : 1;
}

// What the servers say of the update that this worker goes on with, where it was of gradients of one version.
void PsStrategy::note_update_norm(const CommitOptions& commit, CommitResult& result) {
  std::optional<ps::UpdateNorm> all = learner_->update_norm();
  if (!all) return;
  if (rows_) {
    const double square = rows_->square_at(over_ ? learner_->end().version : learner_->work().version);
    if (square < 0) return;
    all->norm = std::sqrt(all->norm * all->norm + square);
  }
  if (commit.measure_norm) result.grad_norm = all->norm;
  if (std::isfinite(all->norm)) return;
  result.updated = false;
  bad_element_ = all->first_bad;
}

std::optional<double> PsStrategy::loss_scale() const {
  if (!scales()) return std::nullopt;
  return scaler_.current_scale();
}

bool PsStrategy::shares_scale() const {
  return scales() && in_step(setup_.policy);
}

// As the scheduler tells it with each minibatch.
void PsStrategy::take_scale() {
  if (!shares_scale()) return;
  const ps::ScaleHead told = over_ ? learner_->end().scale : learner_->work().scale;
  if (!(told.scale > 0)) throw CommError("the scheduler knows no loss scale: worker 0 trains without fp16");
  scaler_.restore(static_cast<double>(told.scale), told.tracker);
  last_skipped_ = over_ ? learner_->end().skipped != 0 : (learner_->work().flags & ps::kSkippedFlag) != 0;
}

// `finite`: the gradient, on all ranks of this worker. Returns whether its update will be skipped: it is
// zeros then.
bool PsStrategy::judge_overflow(bool finite) {
  if (!shares_scale()) {
    scaler_.set_found_inf(!finite);
    scaler_.update();
    return false;
  }
  scaler_.set_found_inf(false);  // the scheduler counts
  if (finite) return false;
  gradients_.zero_();
  if (rows_) rows_->clear();
  return true;
}

CommitResult PsStrategy::commit(const CommitOptions& commit) {
  if (learner_->is_pushing()) return commit_announced(commit);
  CommitResult result;
  if (over_) return result;
  std::vector<torch::Tensor> all = parameters_;
  for (const torch::Tensor& one : rows_ ? rows_->tensors() : std::vector<torch::Tensor>()) all.push_back(one);
  scaler_.unscale(all);
  for (size_t i = 0; i < parameters_.size(); ++i) gather_gradient(i);
  copies_.mark().wait();
  const bool finite = (!rows_ || rows_->gather()) && learner_->is_finite(gradients_.const_data_ptr());
  result.updated = sum_over_ranks(finite ? 0 : 1) == 0;
  const bool overflow = judge_overflow(result.updated);
  result.updated |= overflow;
  const bool local = has_local_steps();
  double clip = 1;
  if (result.updated && (local || !in_step(setup_.policy))) clip = measure_own(commit, result);
  if (!result.updated) return result;
  skipped_ = 0;
  ++minibatches_;
  for (const Kept& batch : batches_) samples_ += batch.target.size(0);
  if (local) {
    if (clip < 1) gradients_.mul_(clip);
    local_step(commit.lr);
  }
  if (minibatches_ % setup_.ps.n_push != 0) return result;
  ps::Gradient told;
  told.data = local ? accrued_.const_data_ptr() : gradients_.const_data_ptr();
  told.loss = loss_;
  told.lr = commit.lr;
  told.compute_seconds = compute_seconds_;
  told.clip = local ? 1 : clip;
  told.measure = commit.measure_norm && !local;
  told.known_finite = !local;
  told.samples = std::exchange(samples_, 0);
  told.overflow = overflow;
  if (rows_)
    told.also = [this](double scale, bool measure) {
      rows_->push(learner_->work().minibatch, scale, measure);
    };
  const bool fetch = minibatches_ % setup_.ps.n_fetch == 0;
  if (moves_behind()) {
    push_behind(std::move(told), fetch);
    tell_loss();
    return result;
  }
  double begin = now_seconds();
  learner_->push(told);
  if (local) accrued_.zero_();
  if (!fetch) over_ = !learner_->wait();
  waited_since(begin);
  if (overlap_ && fetch && !commit.measure_norm)
    pull_work();
  else if (fetch || over_)
    find_work();
  tell_loss();
  if (shares_scale() && last_skipped_) {
    result.updated = false;
    return result;
  }
  if (!local && !pulling_) note_update_norm(commit, result);
  return result;
}

std::optional<std::string> PsStrategy::first_non_finite_gradient() {
  if (std::optional<std::string> own = compute_->first_non_finite_gradient()) return own;
  if (bad_element_ < 0) return std::nullopt;
  return layout_->name_at(bad_element_) + " or one after it, in the sum of all workers";
}

std::optional<Strategy::Progress> PsStrategy::progress() const {
  Progress all;
  all.over = over_;
  all.step = over_ ? learner_->end().version : learner_->work().version;
  all.minibatches = (over_ ? learner_->end().gradients : learner_->work().gradients) * setup_.ps.n_push;
  all.samples = over_ ? learner_->end().samples : learner_->work().samples;
  return all;
}

// The optimizer's state by kind ("momentum"), each with a tensor for each parameter that is pushed here.
std::vector<std::pair<std::string, std::vector<torch::Tensor>>> PsStrategy::optimizer_arrays() const {
  const std::vector<optim::NamedTensor>& owned = layout_->owned();
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> arrays;
  for (const auto& [name, tensor] : optimizer_.state()) {
    size_t slash = name.find('/');
    if (slash == std::string::npos || name.rfind("master/", 0) == 0) continue;
    std::string kind = name.substr(0, slash);
    if (arrays.empty() || arrays.back().first != kind) arrays.push_back({kind, {}});
    const size_t next = arrays.back().second.size();
    if (!layout_->owns(name.substr(slash + 1))) continue;
    YOKE_CHECK(next < owned.size() && owned[next].first == name.substr(slash + 1), "{} comes out of order",
               name);
    arrays.back().second.push_back(tensor);
  }
  return arrays;
}

std::vector<StatePiece> PsStrategy::state() {
  finish_pull();
  take_fetched(/*must=*/true);
  return owned_pieces(compute_->state());
}

std::optional<int64_t> PsStrategy::fetch_state() {
  torch::NoGradGuard no_grad;
  finish_pull();
  take_fetched(/*must=*/true);
  auto arrays = optimizer_arrays();
  std::vector<torch::Tensor> whole = {torch::empty_like(flat_)};
  std::vector<void*> memory = {whole[0].mutable_data_ptr()};
  for (size_t i = 0; i < arrays.size(); ++i) {
    whole.push_back(torch::empty_like(flat_));
    memory.push_back(whole.back().mutable_data_ptr());
  }
  std::function<void(int64_t)> rows;
  if (rows_) rows = [this](int64_t version) { rows_->fetch(version, optimizer_); };
  ps::Learner::State state = learner_->fetch_state(memory, rows);
  std::vector<torch::Tensor> values = flat_parts(whole[0], parameters_);
  for (size_t i = 0; i < values.size(); ++i) parameters_[i].copy_(values[i]);
  layout_->spread();
  for (size_t k = 0; k < arrays.size(); ++k) {
    std::vector<torch::Tensor> parts = flat_parts(whole[k + 1], parameters_);
    for (size_t i = 0; i < parts.size(); ++i) arrays[k].second[i].copy_(parts[i]);
  }
  for (auto& [name, tensor] : optimizer_.state()) {
    if (name == "step") tensor.fill_(static_cast<double>(state.steps));
  }
  return state.version;
}

}  // namespace yoke::parallel
