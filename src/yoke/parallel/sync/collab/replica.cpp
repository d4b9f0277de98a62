#include "yoke/parallel/sync/collab/replica.h"

#include <cstring>

#include "yoke/base/error.h"

namespace yoke::parallel {

CollabReplica::CollabReplica(Strategy& strategy, const models::Model& model, CollabReplicaOptions options)
    : strategy_(strategy), options_(std::move(options)) {
  for (const torch::Tensor& parameter : model.module->parameters())
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  discard();
}

int64_t CollabReplica::elements() const {
  int64_t count = 0;
  for (const torch::Tensor& parameter : parameters_) count += parameter.numel();
  return count;
}

int64_t CollabReplica::state_bytes() const {
  int64_t bytes = 0;
  for (const StatePiece& piece : strategy_.state()) bytes += static_cast<int64_t>(piece.values.nbytes());
  return bytes;
}

// The gradient of a batch counts as often as it has samples; read_gradient() divides by all of them.
double CollabReplica::compute(int64_t first, int64_t count) {
  auto [inputs, target] = options_.samples(first, count);
  ComputeResult result =
      strategy_.compute(inputs, target, {.weight = static_cast<double>(count), .last = true});
  samples_ += count;
  return result.loss.item<double>();
}

void CollabReplica::discard() {
  strategy_.acquire();
  samples_ = 0;
}

void CollabReplica::read_gradient(std::span<float> into) {
  torch::NoGradGuard no_grad;
  torch::Tensor flat = torch::from_blob(into.data(), {static_cast<int64_t>(into.size())}, torch::kFloat32);
  int64_t begin = 0;
  for (const torch::Tensor& parameter : parameters_) {
    torch::Tensor place = flat.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    const torch::Tensor& gradient = parameter.grad();
    if (gradient.defined() && samples_ > 0)
      place.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient).div_(static_cast<double>(samples_));
    else
      place.zero_();
    begin += parameter.numel();
  }
}

void CollabReplica::step(std::span<const float> gradient, int64_t epoch) {
  torch::NoGradGuard no_grad;
  torch::Tensor flat = torch::from_blob(const_cast<float*>(gradient.data()),
                                        {static_cast<int64_t>(gradient.size())}, torch::kFloat32);
  int64_t begin = 0;
  for (torch::Tensor& parameter : parameters_) {
    torch::Tensor mean = flat.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    torch::Tensor& own = parameter.mutable_grad();
    if (own.defined() && !own.is_sparse())
      own.copy_(mean);
    else
      own = mean.to(parameter.options()).clone();
    begin += parameter.numel();
  }
  strategy_.commit({.lr = options_.learning_rate(epoch)});
}

std::vector<std::byte> CollabReplica::state() {
  std::vector<std::byte> bytes;
  for (const StatePiece& piece : strategy_.state()) {
    const torch::Tensor values = piece.values.detach().cpu().contiguous();
    const auto* first = static_cast<const std::byte*>(values.data_ptr());
    bytes.insert(bytes.end(), first, first + values.nbytes());
  }
  return bytes;
}

void CollabReplica::restore(const std::vector<std::byte>& state, int64_t epoch) {
  torch::NoGradGuard no_grad;
  YOKE_CHECK(static_cast<int64_t>(state.size()) == state_bytes(), "{} bytes of state", state.size());
  size_t begin = 0;
  for (StatePiece& piece : strategy_.state()) {
    torch::Tensor values = torch::empty(piece.values.sizes(), piece.values.options().device(torch::kCPU));
    std::memcpy(values.data_ptr(), state.data() + begin, values.nbytes());
    begin += values.nbytes();
    piece.values.copy_(values);
  }
  strategy_.restored(epoch);
}

std::unique_ptr<collab::Trainer> make_collab_trainer(Strategy& strategy, const models::Model& model,
                                                     CollabReplicaOptions options) {
  return std::make_unique<CollabReplica>(strategy, model, std::move(options));
}

}  // namespace yoke::parallel
