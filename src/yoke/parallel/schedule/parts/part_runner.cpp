#include "yoke/parallel/schedule/parts/part_runner.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/recompute.h"

namespace yoke::parallel {
namespace {

int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& one : tensors) bytes += static_cast<int64_t>(one.nbytes());
  return bytes;
}

}  // namespace

PartRunner::PartRunner(const models::Model& model, const GraphParts& parts, const PipelineStage& stage,
                       const optim::GradScaler& scaler, Transfers& transfers, PartRunnerOptions options)
    : model_(model),
      parts_(parts),
      stage_(stage),
      scaler_(scaler),
      transfers_(transfers),
      options_(std::move(options)),
      part_(stage.place.stage),
      nodes_(parts.nodes_of(part_)),
      remote_(parts.graph.nodes.size()),
      readers_(parts.graph.nodes.size()) {
  for (auto [from, to] : parts.graph.edges())
    if (parts.holds(part_, to) && !parts.holds(part_, from)) remote_[static_cast<size_t>(to)].push_back(from);
  for (int node : parts.reads_of(part_)) first_reader_[node] = parts.first_reader(part_, node);
  for (int node : nodes_) {
    readers_[static_cast<size_t>(node)] = parts.readers_of(node);
    for (const auto& module : parts.graph.nodes[static_cast<size_t>(node)].modules)
      for (const torch::Tensor& counter : compute::batch_counters(*module))
        batch_counters_.push_back(counter);
  }
}

std::string PartRunner::name(const char* what, int node, int from, int to) const {
  return fmt::format("{} of '{}' part {}>{}", what, parts_.graph.nodes[static_cast<size_t>(node)].name, from,
                     to);
}

torch::Tensor PartRunner::forward(const Tensors& batch, const torch::Tensor& target, const Shape& shape,
                                  double weight) {
  events_.clear();
  sent_.clear();
  sent_back_.clear();
  if (!batch_counters_.empty()) at::_foreach_add_(batch_counters_, 1);
  run_forward(batch, shape, /*training=*/true);
  if (part_ != parts_.last_part()) return {};
  AutocastGuard autocast(options_.device.type(), options_.precision);
  const double start = now_seconds();
  torch::Tensor loss = model_.loss(outputs(), target);
  loss_ = loss * weight;
  events_.back().end += now_seconds() - start;
  return loss.detach();
}

PartRunner::Tensors PartRunner::evaluate(const Tensors& batch, const Shape& shape) {
  torch::NoGradGuard no_grad;
  run_forward(batch, shape, /*training=*/false);
  Tensors found = part_ == parts_.last_part() ? outputs() : Tensors();
  values_.clear();
  return found;
}

void PartRunner::run_forward(const Tensors& batch, const Shape& shape, bool training) {
  values_.clear();
  shape_ = shape;
  expect_inputs(shape);
  auto leaves_of = [&](int node) { return values_.at(node).leaves; };
  for (int node : nodes_) {
    for (int from : remote_[static_cast<size_t>(node)])
      if (!values_.contains(from)) receive(from, shape);
    const double start = now_seconds();
    {
      std::optional<AutocastGuard> autocast;  // an evaluation has its own
      if (training) autocast.emplace(options_.device.type(), options_.precision);
      Values& own = values_[node];
      own.outputs = run(node, models::gather_inputs(parts_.graph, node, batch, leaves_of));
      for (const torch::Tensor& one : own.outputs)
        own.leaves.push_back(one.detach().requires_grad_(one.requires_grad()));
    }
    if (training) events_.push_back({node, false, start, now_seconds()});
    send(node, shape, training);
    if (!training) values_[node].outputs = values_[node].leaves;
  }
}

PartRunner::Tensors PartRunner::run(int node, const Tensors& inputs) const {
  // Backward of the last node follows at once: it need not forget anything.
  if (!options_.recompute || node == parts_.graph.last() || !torch::GradMode::is_enabled())
    return models::run_node(parts_.graph, node, inputs);
  return recompute_list(
      [this, node](const Tensors& again) { return models::run_node(parts_.graph, node, again); }, inputs);
}

// What is known to come is asked for before it is needed.
void PartRunner::expect_inputs(const Shape& shape) {
  for (const auto& [node, reader] : first_reader_) {
    auto spec = specs_.find({node, shape});
    if (spec == specs_.end()) continue;
    const int from = part_of(node);
    transfers_.expect({false, node, rank_of(from)}, {rank_of(from), node, false}, spec->second,
                      name("activation", node, from, part_));
  }
}

void PartRunner::receive(int node, const Shape& shape) {
  const int from = part_of(node), peer = rank_of(from);
  const Line line{peer, node, false};
  const Transfers::Key key{false, node, peer};
  auto spec = specs_.find({node, shape});
  if (spec == specs_.end()) spec = specs_.emplace(SpecKey(node, shape), transfers_.receive_spec(line)).first;
  if (!transfers_.expected(key))
    transfers_.expect(key, line, spec->second, name("activation", node, from, part_));
  Values& there = values_[node];
  there.leaves = transfers_.take(key);
  for (size_t i = 0; i < there.leaves.size(); ++i)
    if (spec->second[i].differentiable && torch::GradMode::is_enabled()) there.leaves[i].requires_grad_();
}

void PartRunner::send(int node, const Shape& shape, bool counts) {
  const std::vector<int>& readers = readers_[static_cast<size_t>(node)];
  if (readers.empty()) return;
  fault::at(fault::Point::kPipelineSend);
  const Tensors& outputs = values_.at(node).outputs;
  const bool known = own_specs_.contains({node, shape});
  BoundarySpec& spec = own_specs_[{node, shape}];
  if (!known) spec = spec_of(outputs);
  if (spec != spec_of(outputs))
    throw ConfigError(
        "model '{}': node '{}' gives tensors of other shapes than for a batch like this before.",
        parts_.graph.model, parts_.graph.nodes[static_cast<size_t>(node)].name);
  for (int part : readers) {
    const Line line{rank_of(part), node, false};
    if (!known) transfers_.send_spec(line, spec);
    transfers_.send(line, outputs, name("activation", node, part_, part));
    if (counts) sent_.push_back({node, part, bytes_of(outputs)});
  }
}

// The last node's with their graph; the others are read like inputs.
PartRunner::Tensors PartRunner::outputs() const {
  Tensors all;
  for (int node : parts_.graph.outputs) {
    const Values& one = values_.at(node);
    const Tensors& tensors = node == parts_.graph.last() ? one.outputs : one.leaves;
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  return all;
}

void PartRunner::backward() {
  expect_gradients();
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) run_backward(*node);
  values_.clear();
  loss_ = torch::Tensor();
}

void PartRunner::expect_gradients() {
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    for (int part : readers_[static_cast<size_t>(*node)]) {
      const int peer = rank_of(part);
      transfers_.expect({true, *node, peer}, {peer, *node, true},
                        differentiable(own_specs_.at({*node, shape_})), name("gradient", *node, part, part_));
    }
  }
}

void PartRunner::run_backward(int node) {
  Values own = std::move(values_.at(node));
  values_.erase(node);
  Tensors roots;
  Tensors gradients;
  if (node == parts_.graph.last()) {
    roots = {scaler_.scale(loss_)};
    gradients = {torch::ones_like(roots[0])};
  } else {
    for (size_t i = 0; i < own.outputs.size(); ++i) {
      if (!own.outputs[i].requires_grad()) continue;
      roots.push_back(own.outputs[i]);
      gradients.push_back(own.leaves[i].grad());
    }
    Tensors others = gradients_of(node, roots);
    for (size_t i = 0; i < others.size(); ++i)
      gradients[i] = gradients[i].defined() ? gradients[i] + others[i] : others[i];
    for (size_t i = 0; i < roots.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = torch::zeros_like(roots[i]);
  }
  own = {};
  const double start = now_seconds();
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  events_.push_back({node, true, start, now_seconds()});
  for (int from : remote_[static_cast<size_t>(node)])
    if (first_reader_.at(from) == node) send_back(from);
}

// The sum of what other parts send back; empty where none reads the node.
PartRunner::Tensors PartRunner::gradients_of(int node, const Tensors& roots) {
  Tensors sum;
  for (int part : readers_[static_cast<size_t>(node)]) {
    Tensors one = transfers_.take({true, node, rank_of(part)});
    YOKE_CHECK(one.size() == roots.size(), "{} outputs and {} gradients", roots.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      if (sum.size() <= i)
        sum.push_back(one[i]);
      else
        sum[i] = sum[i] + one[i];
    }
  }
  return sum;
}

void PartRunner::send_back(int node) {
  fault::at(fault::Point::kPipelineSend);
  Tensors gradients;
  for (const torch::Tensor& leaf : values_.at(node).leaves) {
    if (!leaf.requires_grad()) continue;
    gradients.push_back(leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf));
  }
  const int to = part_of(node);
  transfers_.send({rank_of(to), node, true}, gradients, name("gradient", node, part_, to));
  sent_back_.push_back({node, to, bytes_of(gradients)});
  values_.erase(node);
}

double PartRunner::seconds(bool backward) const {
  double sum = 0;
  for (const NodeEvent& one : events_)
    if (one.backward == backward) sum += one.end - one.start;
  return sum;
}

}  // namespace yoke::parallel
