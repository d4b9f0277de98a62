#include "yoke/parallel/schedule/threads/replicas.h"

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

torch::Device device_of(const torch::nn::Module& module) {
  for (const torch::Tensor& parameter : module.parameters()) return parameter.device();
  for (const torch::Tensor& buffer : module.buffers()) return buffer.device();
  return torch::kCPU;
}

void check_alike(const torch::nn::Module& first, const torch::nn::Module& other, size_t replica) {
  auto ours = first.named_parameters(), theirs = other.named_parameters();
  bool alike = ours.keys() == theirs.keys() && first.named_buffers().keys() == other.named_buffers().keys();
  if (!alike) throw ConfigError("replica {} has other parameters or buffers than replica 0.", replica);
  for (const auto& item : ours)
    if (item.value().sizes() != theirs[item.key()].sizes())
      throw ConfigError("parameter {} is {} on replica 0 and {} on replica {}.", item.key(),
                        c10::str(item.value().sizes()), c10::str(theirs[item.key()].sizes()), replica);
}

}  // namespace

Replicas::Replicas(std::vector<std::shared_ptr<torch::nn::Module>> modules) : modules_(std::move(modules)) {
  if (modules_.empty()) throw ConfigError("DataParallel needs at least one replica.");
  for (size_t i = 0; i < modules_.size(); ++i) {
    const torch::nn::Module& module = *modules_[i];
    check_alike(*modules_[0], module, i);
    devices_.push_back(device_of(module));
    followers_.push_back({module.parameters(), module.buffers(), modules_[i]->modules(), {}});
    followers_.back().versions.assign(followers_.back().parameters.size(), -1);
  }
}

bool Replicas::all_on_cpu() const {
  for (const torch::Device& device : devices_)
    if (!device.is_cpu()) return false;
  return true;
}

void Replicas::refresh(size_t count) {
  for (size_t i = 1; i < count; ++i) follow(followers_[i]);
}

void Replicas::follow(Follower& follower) {
  torch::NoGradGuard no_grad;
  const Follower& first = followers_[0];
  for (size_t i = 0; i < first.parameters.size(); ++i) {
    const torch::Tensor& from = first.parameters[i];
    torch::Tensor& to = follower.parameters[i];
    bool shared = from.device() == to.device();
    if (shared) {
      if (to.data_ptr() != from.data_ptr() || to.scalar_type() != from.scalar_type())
        to.set_data(from.detach());
    } else if (follower.versions[i] != from._version()) {
      if (to.scalar_type() != from.scalar_type()) to.set_data(to.to(from.scalar_type()));
      to.copy_(from, /*non_blocking=*/true);
      follower.versions[i] = from._version();
    }
    if (to.requires_grad() != from.requires_grad()) to.requires_grad_(from.requires_grad());
  }
  for (size_t i = 0; i < first.buffers.size(); ++i) follower.buffers[i].copy_(first.buffers[i]);
  // Parents first, so that a child's own mode is set last.
  for (size_t i = 0; i < first.parts.size(); ++i)
    if (follower.parts[i]->is_training() != first.parts[i]->is_training())
      follower.parts[i]->train(first.parts[i]->is_training());
}

void Replicas::drop_gradients() {
  for (size_t replica = 1; replica < followers_.size(); ++replica)
    for (torch::Tensor& parameter : followers_[replica].parameters) parameter.mutable_grad().reset();
}

void Replicas::collect_gradients(size_t count) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < followers_[0].parameters.size(); ++i) {
    torch::Tensor& sum = followers_[0].parameters[i].mutable_grad();
    for (size_t replica = 1; replica < count; ++replica) {
      torch::Tensor& gradient = followers_[replica].parameters[i].mutable_grad();
      if (!gradient.defined()) continue;
      torch::Tensor here = gradient.to(followers_[0].parameters[i].device());
      if (!sum.defined())
        sum = here;
      else if (sum.is_sparse() || here.is_sparse())
        sum = sum + here;
      else
        sum.add_(here);
      gradient = torch::Tensor();
    }
  }
}

}  // namespace yoke::parallel
