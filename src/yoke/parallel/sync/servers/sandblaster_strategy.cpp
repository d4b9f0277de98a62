#include "yoke/parallel/sync/servers/sandblaster_strategy.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/optim/lbfgs_state.h"
#include "yoke/parallel/sync/servers/flat_parts.h"
#include "yoke/parallel/sync/servers/server_ranks.h"

namespace yoke::parallel {
namespace {

namespace sandblaster = ps::sandblaster;
using kernels::LbfgsVector;

OneDeviceOptions without_batches(OneDeviceOptions options) {
  options.keep_batches = false;  // they are kept here
  return options;
}

void check_model(const models::Model& model, const std::vector<std::string>& names,
                 const std::vector<torch::Tensor>& parameters) {
  const char* what = "train.optimizer = \"lbfgs\" with parallel.sync = \"ps\"";
  if (model.sample.kind == SampleKind::kSparse)
    throw ConfigError("{}: sparse samples cannot be cut into portions. Use ftrl or adagrad.", what);
  const c10::ScalarType type = parameters.front().scalar_type();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].scalar_type() != type || (type != torch::kFloat32 && type != torch::kFloat64))
      throw ConfigError("{}: parameter '{}' is neither fp32 nor fp64 like the others.", what, names[i]);
}

}  // namespace

SandblasterStrategy::SandblasterStrategy(const models::Model& model, optim::Optimizer& optimizer,
                                         optim::GradScaler& scaler, OneDeviceOptions options, PsSetup setup)
    : optimizer_(optimizer), setup_(std::move(setup)), delays_(setup_) {
  sandblaster::ClientOptions client;
  int64_t elements = 0;
  for (const auto& item : model.module->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    client.tensors.push_back(item.value().numel());
    elements += item.value().numel();
  }
  check_model(model, names_, parameters_);
  flat_ = torch::zeros({elements}, parameters_.front().scalar_type());
  gradient_ = torch::zeros_like(flat_);
  client.workers = setup_.workers;
  client.servers = static_cast<int>(setup_.ps.servers);
  client.type = flat_.scalar_type() == torch::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  client.range_bytes = setup_.ps.range_bytes;
  client.timeout = setup_.timeout;
  client_ = std::make_unique<sandblaster::SandblasterClient>(*setup_.messenger, std::move(client));
  compute_ = std::make_unique<OneDevice>(model, optimizer_, scaler, without_batches(std::move(options)));
}

void SandblasterStrategy::upload(const torch::Tensor& flat) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts = flat_parts(flat, parameters_);
  for (size_t i = 0; i < parts.size(); ++i) parameters_[i].copy_(parts[i]);
}

void SandblasterStrategy::gather_gradients() {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts = flat_parts(gradient_, parameters_);
  for (size_t i = 0; i < parts.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    if (gradient.defined())
      parts[i].copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
    else
      parts[i].zero_();
  }
}

void SandblasterStrategy::begin(int64_t) {
  join_run();
}

// The first worker sets the start: the others pull it.
void SandblasterStrategy::join_run() {
  if (std::exchange(begun_, true) || !is_first()) return;
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts = flat_parts(flat_, parameters_);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(parameters_[i]);
  client_->assign(LbfgsVector::kParameters, flat_.const_data_ptr());
  const optim::LbfgsState stored(optimizer_.state());
  const kernels::LbfgsNumbers numbers = stored.numbers();
  if (numbers.iterations == 0) return;
  for (const auto& [number, tensor] : stored.vectors())
    client_->assign(number, tensor.to(torch::kCPU).contiguous().const_data_ptr());
  client_->assign(numbers);
}

void SandblasterStrategy::acquire() {
  batches_.clear();
  agreed_ = false;
  batch_samples_ = 0;
  talk_ = {};
}

ComputeResult SandblasterStrategy::compute(const std::vector<torch::Tensor>& inputs,
                                           const torch::Tensor& target, const MicroBatch& micro) {
  batches_.push_back({inputs, target, micro.weight});
  batch_samples_ += target.size(0);
  return {torch::zeros({}, torch::kFloat64), 0, 0};
}

double SandblasterStrategy::compute_samples(int64_t first, int64_t last) {
  Stopwatch watch;
  compute_->acquire();
  double loss = 0;
  int64_t begin = 0;
  for (const Kept& batch : batches_) {
    const int64_t from = std::max<int64_t>(first - begin, 0);
    const int64_t to = std::min(last - begin, batch.samples());
    begin += batch.samples();
    if (from >= to) continue;
    std::vector<torch::Tensor> inputs;
    for (const torch::Tensor& input : batch.inputs) inputs.push_back(input.slice(0, from, to));
    MicroBatch part;
    part.weight = batch.weight * static_cast<double>(to - from) / static_cast<double>(batch.samples());
    loss +=
        compute_->compute(inputs, batch.target.slice(0, from, to), part).loss.item<double>() * part.weight;
  }
  gather_gradients();
  const double delay = delays_.compute.next(watch.seconds()) + delays_.link.next(0);
  if (delay > 0) std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  compute_seconds_ += watch.seconds();
  return loss;
}

sandblaster::AskReply SandblasterStrategy::take_part(sandblaster::AskHead head) {
  head.step = step_;
  head.samples = batch_samples_;
  sandblaster::Work work;
  work.parameters = flat_.mutable_data_ptr();
  work.gradient = gradient_.const_data_ptr();
  work.moved = [this] { upload(flat_); };
  work.compute = [this](int64_t first, int64_t last) { return compute_samples(first, last); };
  compute_seconds_ = 0;
  Stopwatch watch;
  const sandblaster::AskReply told = client_->take_part(head, work);
  const double waited = watch.seconds() - compute_seconds_;
  talk_.seconds += waited;
  talk_.exposed += waited;
  over_ = told.over != 0;
  signal_ = told.signal;
  return told;
}

StepNews SandblasterStrategy::agree(const StepNews& here) {
  // The end of a run calls it once more, without a batch.
  if (batches_.empty() || over_ || std::exchange(agreed_, true))
    return {here.loss, over_ ? signal_ : here.stop_signal};
  join_run();
  ++step_;
  samples_ += batch_samples_;
  const auto told = take_part({.phase = sandblaster::kFirst, .signal = here.stop_signal});
  grad_norm_ = told.grad_norm;
  // The coordinator stops all workers after the same step.
  return {torch::tensor(told.loss, torch::kFloat64), over_ ? signal_ : 0};
}

CommitResult SandblasterStrategy::commit(const CommitOptions& commit) {
  CommitResult result;
  if (commit.measure_norm) result.grad_norm = grad_norm_;
  result.updated = std::isfinite(grad_norm_);
  if (result.updated && !over_) take_part({.phase = sandblaster::kRest, .lr = commit.lr});
  return result;
}

void SandblasterStrategy::drain() {
  if (!begun_) return;
  client_->pull(LbfgsVector::kParameters, flat_.mutable_data_ptr());
  upload(flat_);
}

Traffic SandblasterStrategy::traffic() const {
  Traffic all;
  all.data = client_->bytes_pushed();
  return all;
}

std::optional<Strategy::Progress> SandblasterStrategy::progress() const {
  return Progress{step_, step_ - start_, samples_, over_};
}

DataShare SandblasterStrategy::share() const {
  DataShare share;
  share.batches = setup_.workers;
  return share;
}

std::vector<StatePiece> SandblasterStrategy::of_first(std::vector<StatePiece> pieces) const {
  for (StatePiece& one : pieces)
    if (!is_first()) one.holder = -1;
  return pieces;
}

std::vector<StatePiece> SandblasterStrategy::state() {
  return of_first(compute_->state());
}

std::vector<StatePiece> SandblasterStrategy::gradients() {
  torch::NoGradGuard no_grad;
  client_->pull(LbfgsVector::kGradient, gradient_.mutable_data_ptr());
  std::vector<torch::Tensor> parts = flat_parts(gradient_, parameters_);
  for (size_t i = 0; i < parts.size(); ++i)
    parameters_[i].mutable_grad() = parts[i].to(parameters_[i].device(), false, /*copy=*/true);
  return of_first(compute_->gradients());
}

std::optional<std::string> SandblasterStrategy::first_non_finite_gradient() {
  client_->pull(LbfgsVector::kGradient, gradient_.mutable_data_ptr());
  std::vector<torch::Tensor> parts = flat_parts(gradient_, parameters_);
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].isfinite().all().item<bool>()) return names_[i];
  return std::nullopt;
}

std::optional<int64_t> SandblasterStrategy::fetch_state() {
  if (!begun_) return step_;
  torch::NoGradGuard no_grad;
  drain();
  const optim::LbfgsState stored(optimizer_.state());
  torch::Tensor whole = torch::empty_like(flat_);
  for (auto& [number, tensor] : stored.vectors()) {
    client_->pull(number, whole.mutable_data_ptr());
    tensor.copy_(whole);
  }
  stored.set(client_->fetch_numbers(static_cast<int64_t>(stored.numbers().inverse_curvature.size())));
  return step_;
}

RunEnd SandblasterStrategy::finish(int64_t peak_memory) {
  RunEnd end;
  if (is_first() && begun_) {
    try {
      end.peak_memory = client_->await_end();
    } catch (const CommError& error) {
      end.problem = std::make_shared<CommError>(error);
      end.peak_memory.resize(static_cast<size_t>(setup_.workers));
    }
    end.peak_memory[0] = peak_memory;
    end.reports.push_back({"sandblaster.json", client_->count() + "\n"});
  }
  client_->goodbye(peak_memory);
  if (setup_.server != nullptr && !end.problem) setup_.server->finish();
  return end;
}

}  // namespace yoke::parallel
