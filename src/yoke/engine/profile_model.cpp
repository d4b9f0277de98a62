#include "yoke/engine/profile_model.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <unordered_set>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/compute/device.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/synthetic_batches.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::engine {
namespace {

using models::Tensors;

struct BlockTimes {
  std::vector<double> forward, backward;
  double activation_bytes = 0;
};

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const torch::Tensor& one : tensors) bytes += static_cast<double>(one.nbytes());
  return bytes;
}

double parameter_bytes(const models::Block& block) {
  std::unordered_set<const void*> seen;
  double bytes = 0;
  for (const auto& module : block.modules)
    for (const torch::Tensor& one : module->parameters())
      if (seen.insert(one.unsafeGetTensorImpl()).second) bytes += static_cast<double>(one.nbytes());
  return bytes;
}

// As a pipeline runs them: each block apart, gradients handed back from block to block.
class Pass {
 public:
  Pass(const Worker& worker, std::vector<BlockTimes>& times, bool counts)
      : worker_(worker), times_(times), counts_(counts) {}

  void run(const data::Batch& batch) {
    Tensors values = batch.inputs;
    torch::Tensor loss;
    const auto& blocks = worker_.model.blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i > 0)
        for (torch::Tensor& one : values) one = one.detach().requires_grad_(one.is_floating_point());
      inputs_.push_back(values);
      Stopwatch watch;
      {
        AutocastGuard autocast(worker_.device.type(), worker_.autocast);
        values = blocks[i].forward(values);
        if (i + 1 == blocks.size()) loss = worker_.model.loss(values, batch.target);
      }
      note(times_[i].forward, watch);
      outputs_.push_back(values);
      times_[i].activation_bytes = bytes_of(values);
    }
    outputs_.back() = {loss};
    for (size_t i = blocks.size(); i-- > 0;) backward(i);
  }

 private:
  void note(std::vector<double>& list, const Stopwatch& watch) const {
    compute::synchronize(worker_.device);
    if (counts_) list.push_back(watch.seconds());
  }

  void backward(size_t i) {
    Tensors roots, gradients;
    for (size_t j = 0; j < outputs_[i].size(); ++j) {
      if (!outputs_[i][j].requires_grad()) continue;
      bool last = i + 1 == outputs_.size();
      torch::Tensor gradient = last ? torch::ones_like(outputs_[i][j]) : inputs_[i + 1][j].grad();
      if (!gradient.defined()) continue;
      roots.push_back(outputs_[i][j]);
      gradients.push_back(gradient);
    }
    Stopwatch watch;
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    note(times_[i].backward, watch);
    outputs_[i].clear();
  }

  const Worker& worker_;
  std::vector<BlockTimes>& times_;
  bool counts_;
  std::vector<Tensors> inputs_, outputs_;
};

}  // namespace

plan::Profile profile_model(const Worker& worker, int64_t batch, const ProfileOptions& options) {
  YOKE_CHECK(!worker.stage, "a stage has no whole model to profile");
  Tensors kept;  // statistics that training mode changes
  for (const torch::Tensor& buffer : worker.model.module->buffers()) kept.push_back(buffer.clone());
  std::vector<data::Batch> batches = synthetic_batches(worker, batch);
  std::vector<BlockTimes> times(worker.model.blocks.size());
  for (int64_t i = 0; i < options.warm_up + options.repeats; ++i) {
    worker.optimizer->zero_grad();
    Pass(worker, times, i >= options.warm_up).run(batches[static_cast<size_t>(i) % batches.size()]);
  }
  worker.optimizer->zero_grad();
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> buffers = worker.model.module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(kept[i]);

  plan::Profile profile;
  profile.device = worker.device.str();
  profile.batch = batch;
  for (size_t i = 0; i < times.size(); ++i) {
    const models::Block& block = worker.model.blocks[i];
    profile.layers.push_back({block.name, metrics::median(times[i].forward),
                              metrics::median(times[i].backward), times[i].activation_bytes,
                              parameter_bytes(block)});
  }
  return profile;
}

}  // namespace yoke::engine
