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
#include "yoke/models/graph.h"

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

// As parts of a model run: each node separately, with gradients passed back from node to node.
class Pass {
 public:
  Pass(const Worker& worker, const models::Graph& graph, std::vector<BlockTimes>& times, bool counts)
      : worker_(worker),
        graph_(graph),
        times_(times),
        counts_(counts),
        outputs_(graph.nodes.size()),
        leaves_(graph.nodes.size()) {}

  void run(const data::Batch& batch) {
    for (int node = 0; node <= graph_.last(); ++node) forward(node, batch);
    for (int node = graph_.last(); node >= 0; --node) backward(static_cast<size_t>(node));
  }

 private:
  void note(std::vector<double>& list, const Stopwatch& watch) const {
    compute::synchronize(worker_.device);
    if (counts_) list.push_back(watch.seconds());
  }

  void forward(int node, const data::Batch& batch) {
    const auto i = static_cast<size_t>(node);
    auto leaves_of = [&](int from) { return leaves_[static_cast<size_t>(from)]; };
    Tensors inputs = models::gather_inputs(graph_, node, batch.inputs, leaves_of);
    Stopwatch watch;
    {
      AutocastGuard autocast(worker_.device.type(), worker_.autocast);
      outputs_[i] = models::run_node(graph_, node, inputs);
      times_[i].activation_bytes = bytes_of(outputs_[i]);
      if (node == graph_.last()) outputs_[i] = {worker_.model.loss(model_outputs(), batch.target)};
    }
    note(times_[i].forward, watch);
    if (node == graph_.last()) return;
    for (const torch::Tensor& one : outputs_[i])
      leaves_[i].push_back(one.detach().requires_grad_(one.is_floating_point()));
  }

  Tensors model_outputs() const {
    Tensors all;
    for (int node : graph_.outputs) {
      const Tensors& one = (node == graph_.last() ? outputs_ : leaves_)[static_cast<size_t>(node)];
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  void backward(size_t i) {
    Tensors roots, gradients;
    for (size_t j = 0; j < outputs_[i].size(); ++j) {
      if (!outputs_[i][j].requires_grad()) continue;
      bool last = i + 1 == outputs_.size();
      torch::Tensor gradient = last ? torch::ones_like(outputs_[i][j]) : leaves_[i][j].grad();
      if (!gradient.defined()) continue;
      roots.push_back(outputs_[i][j]);
      gradients.push_back(gradient);
    }
    Stopwatch watch;
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    note(times_[i].backward, watch);
    outputs_[i].clear();
    leaves_[i].clear();
  }

  const Worker& worker_;
  const models::Graph& graph_;
  std::vector<BlockTimes>& times_;
  bool counts_;
  std::vector<Tensors> outputs_;  // of each node, with their graph
  std::vector<Tensors> leaves_;   // the same for who reads them
};

plan::Profile profile(const Worker& worker, const models::Graph& graph, int64_t batch,
                      const ProfileOptions& options) {
  YOKE_CHECK(!worker.options->holds_part(), "a part of a model cannot be profiled as a whole");
  Tensors kept;  // statistics that training mode changes
  for (const torch::Tensor& buffer : worker.model.module->buffers()) kept.push_back(buffer.clone());
  std::vector<data::Batch> batches = synthetic_batches(worker, batch);
  std::vector<BlockTimes> times(graph.nodes.size());
  for (int64_t i = 0; i < options.warm_up + options.repeats; ++i) {
    worker.optimizer->zero_grad();
    Pass(worker, graph, times, i >= options.warm_up).run(batches[static_cast<size_t>(i) % batches.size()]);
  }
  worker.optimizer->zero_grad();
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> buffers = worker.model.module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(kept[i]);

  plan::Profile profile;
  profile.device = worker.device.str();
  profile.batch = batch;
  for (size_t i = 0; i < times.size(); ++i) {
    const models::Block& block = graph.nodes[i];
    profile.layers.push_back({block.name, metrics::median(times[i].forward),
                              metrics::median(times[i].backward), times[i].activation_bytes,
                              parameter_bytes(block)});
  }
  if (!graph.chain)
    for (auto [from, to] : graph.edges()) profile.edges.push_back({from, to});
  return profile;
}

}  // namespace

plan::Profile profile_model(const Worker& worker, int64_t batch, const ProfileOptions& options) {
  return profile(worker, models::graph_of_blocks(worker.model), batch, options);
}

plan::Profile profile_graph(const Worker& worker, int64_t batch, const ProfileOptions& options) {
  return profile(worker, models::graph_of(worker.model), batch, options);
}

}  // namespace yoke::engine
