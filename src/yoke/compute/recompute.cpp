#include "yoke/compute/recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/compute/memory_meter.h"
#include "yoke/compute/recompute_kept.h"
#include "yoke/compute/recompute_state.h"

namespace yoke {
namespace {

using Tensors = std::vector<torch::Tensor>;

thread_local int recomputations = 0;

// A backward pass inside another one on this thread, and the functions to run at the end of the outer one. If
// it fails, they are discarded.
class InnerBackward {
 public:
  InnerBackward() : outer_(std::exchange(innermost, this)) {}
  ~InnerBackward() { innermost = outer_; }
  InnerBackward(const InnerBackward&) = delete;
  InnerBackward& operator=(const InnerBackward&) = delete;

  std::vector<std::function<void()>> for_outer;
  static thread_local InnerBackward* innermost;

 private:
  InnerBackward* outer_;
};
thread_local InnerBackward* InnerBackward::innermost = nullptr;

// Casts of weights made here have no graph: if cached, they would cut off the gradient of a later use.
class NoCastCache {
 public:
  NoCastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoCastCache() { at::autocast::set_autocast_cache_enabled(before_); }

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

// The one autograd node that represents the whole function. Its edges lead to the inputs; captured parameters
// get their gradients from the inner backward.
class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(const RecomputeFunction& function, const Tensors& inputs)
      : Node(torch::autograd::collect_next_edges(inputs)), function_(function), random_(inputs) {
    for (const torch::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  Tensors forward(const Tensors& inputs) {
    torch::NoGradGuard no_grad;
    NoCastCache no_cache;
    KeptResults::Scope keep(kept_, KeptResults::Run::kFirst);
    Tensors outputs = function_(inputs);
    random_.check_capture();
    // A new tensor even if the function returns an input or a view of one.
    for (torch::Tensor& output : outputs) {
      if (output.defined()) output = output.detach();
    }
    return outputs;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    YOKE_CHECK(function_ != nullptr, "backward a second time through yoke::recompute: use retain_graph");
    YOKE_CHECK(!torch::GradMode::is_enabled(), "yoke::recompute does not support create_graph");
    Tensors inputs = detached_inputs();
    Tensors outputs = run_again(inputs);
    YOKE_CHECK(outputs.size() == gradients.size(),
               "yoke::recompute: the function gave {} tensors in forward and {} in backward",
               gradients.size(), outputs.size());
    Tensors roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(std::move(outputs[i]));
      root_gradients.push_back(std::move(gradients[i]));
    }
    outputs.clear();
    if (!roots.empty()) {
      std::vector<std::function<void()>> waiting;
      {
        InnerBackward inner;
        torch::autograd::backward(roots, root_gradients);
        waiting = std::move(inner.for_outer);
      }
      for (auto& function : waiting) at_end_of_backward(std::move(function));
    }
    for (torch::Tensor& input : inputs) {
      if (input.defined()) input = input.grad();
    }
    return inputs;
  }

  void release_variables() override {
    inputs_.clear();
    function_ = nullptr;
  }

  std::string name() const override { return "YokeRecompute"; }

 private:
  Tensors detached_inputs() {
    Tensors inputs;
    for (auto& saved : inputs_) {
      torch::Tensor input = saved.unpack();
      bool requires_grad = input.defined() && input.requires_grad();
      if (input.defined()) input = input.detach();
      if (requires_grad) input.requires_grad_();
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  Tensors run_again(const Tensors& inputs) {
    RandomStateGuard later(random_);
    random_.restore();
    AutocastStateGuard autocast(autocast_);
    torch::AutoGradMode with_grad(true);
    RecomputationMark mark;
    KeptResults::Scope take(kept_, KeptResults::Run::kAgain);
    return function_(inputs);
  }

  RecomputeFunction function_;
  KeptResults kept_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  RandomState random_;
  AutocastState autocast_;
};

int64_t distinct_bytes(const Tensors& tensors) {
  std::vector<const void*> seen;
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || std::count(seen.begin(), seen.end(), tensor.storage().data()) > 0) continue;
    seen.push_back(tensor.storage().data());
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

// The same values as leaves of a separate graph.
Tensors detached(const Tensors& tensors) {
  Tensors leaves;
  for (const torch::Tensor& tensor : tensors) {
    leaves.push_back(tensor.defined() ? tensor.detach() : tensor);
    if (tensor.defined() && tensor.requires_grad()) leaves.back().requires_grad_();
  }
  return leaves;
}

RecomputeFunction chain(std::vector<RecomputeFunction> blocks) {
  return [blocks = std::move(blocks)](const Tensors& inputs) {
    Tensors values = inputs;
    for (const RecomputeFunction& block : blocks) values = block(values);
    return values;
  };
}

}  // namespace

bool in_recomputation() {
  return recomputations > 0;
}

RecomputationMark::RecomputationMark() {
  ++recomputations;
}
RecomputationMark::~RecomputationMark() {
  --recomputations;
}

void at_end_of_backward(std::function<void()> function) {
  torch::autograd::Engine::get_default_engine().queue_callback([function = std::move(function)]() mutable {
    if (InnerBackward::innermost != nullptr)
      InnerBackward::innermost->for_outer.push_back(std::move(function));
    else
      function();
  });
}

std::vector<torch::Tensor> recompute_list(const RecomputeFunction& function,
                                          const std::vector<torch::Tensor>& inputs) {
  if (!torch::GradMode::is_enabled()) return function(inputs);
  std::shared_ptr<RecomputeNode> node(new RecomputeNode(function, inputs), torch::autograd::deleteNode);
  Tensors outputs = node->forward(inputs);
  for (torch::Tensor& output : outputs) {
    bool differentiable = output.defined() && torch::autograd::isDifferentiableType(output.scalar_type());
    torch::autograd::set_history(differentiable ? output : torch::Tensor(), node);
  }
  return outputs;
}

std::vector<torch::Tensor> run_blocks(const std::vector<RecomputeFunction>& blocks,
                                      const std::vector<torch::Tensor>& inputs,
                                      const std::vector<compute::Segment>& segments) {
  if (segments.empty()) return chain(blocks)(inputs);
  Tensors values = inputs;
  size_t done = 0;
  for (const compute::Segment& segment : segments) {
    YOKE_CHECK(segment.begin == done && segment.begin < segment.end && segment.end <= blocks.size(),
               "segment [{}, {}) after block {} of {}", segment.begin, segment.end, done, blocks.size());
    done = segment.end;
    auto first = blocks.begin() + static_cast<std::ptrdiff_t>(segment.begin);
    auto last = blocks.begin() + static_cast<std::ptrdiff_t>(segment.end);
    if (segment.recompute) {
      values = recompute_list(chain({first, last}), values);
    } else {
      for (; first != last; ++first) values = (*first)(values);
    }
  }
  YOKE_CHECK(done == blocks.size(), "segments end at block {} of {}", done, blocks.size());
  return values;
}

std::vector<compute::BlockCost> measure_blocks(const std::vector<RecomputeFunction>& blocks,
                                               const std::vector<torch::Tensor>& inputs) {
  RandomStateGuard later{RandomState(inputs)};
  RecomputationMark mark;
  torch::AutoGradMode with_grad(true);
  compute::MemoryMeter meter;
  std::vector<compute::BlockCost> costs;
  Tensors values = inputs;
  for (const RecomputeFunction& block : blocks) {
    int64_t input_bytes = distinct_bytes(values);
    int64_t before = meter.current_bytes();
    Tensors outputs = block(values);
    costs.push_back({std::max<int64_t>(0, meter.current_bytes() - before), input_bytes});
    values = detached(outputs);
  }
  return costs;
}

}  // namespace yoke
