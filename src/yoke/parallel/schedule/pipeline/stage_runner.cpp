#include "yoke/parallel/schedule/pipeline/stage_runner.h"

#include <torch/csrc/autograd/autograd.h>

#include "yoke/base/error.h"
#include "yoke/compute/layers.h"

namespace yoke::parallel {
namespace {

// The part of the model's segments inside `range`. On one device the last segment need not be recomputed,
// because its backward follows at once; that holds for the last stage only.
std::vector<compute::Segment> segments_within(const std::vector<compute::Segment>& segments,
                                              const BlockRange& range, bool last) {
  bool any = false;
  for (const compute::Segment& one : segments) any = any || one.recompute;
  std::vector<compute::Segment> own;
  for (const compute::Segment& one : segments) {
    size_t begin = std::max(one.begin, range.first), end = std::min(one.end, range.end);
    if (begin >= end) continue;
    bool again = one.recompute || (any && !last);
    own.push_back({begin - range.first, end - range.first, again});
  }
  return own;
}

}  // namespace

StageRunner::StageRunner(const models::Model& model, const optim::GradScaler& scaler,
                         const PipelineLayout& layout, int stage, StageRunnerOptions options)
    : model_(model), scaler_(scaler), layout_(layout), stage_(stage), options_(std::move(options)) {
  for (int chunk = 0; chunk < layout.request.chunks; ++chunk) {
    const BlockRange& range = layout.blocks[static_cast<size_t>(number_of(chunk))];
    std::vector<RecomputeFunction>& blocks = blocks_.emplace_back();
    for (size_t i = range.first; i < range.end; ++i) {
      blocks.push_back(model.blocks[i].forward);
      for (const auto& module : model.blocks[i].modules)
        for (const torch::Tensor& counter : compute::batch_counters(*module))
          batch_counters_.push_back(counter);
    }
    segments_.push_back(segments_within(options_.segments, range, is_last(chunk)));
  }
}

const StageRunner::Tensors& StageRunner::forward(int chunk, int micro, Tensors inputs) {
  if (!batch_counters_.empty() && chunk == 0) at::_foreach_add_(batch_counters_, 1);
  AutocastGuard autocast(options_.device.type(), options_.precision);
  Pass& pass = under_way_[{chunk, micro}];
  bool split = layout_.request.kind == plan::ScheduleKind::kZbH1;
  pass.weights = std::make_unique<compute::DeferredGradients>(/*at_once=*/!split);
  compute::DeferredGradients::Use use(pass.weights.get());
  auto at = static_cast<size_t>(chunk);
  pass.outputs = run_blocks(blocks_[at], inputs, segments_[at]);
  pass.inputs = std::move(inputs);
  return pass.outputs;
}

torch::Tensor StageRunner::finish(int chunk, int micro, const torch::Tensor& target, double weight) {
  AutocastGuard autocast(options_.device.type(), options_.precision);
  Pass& pass = under_way_.at({chunk, micro});
  torch::Tensor loss = model_.loss(pass.outputs, target);
  pass.loss = loss * weight;
  pass.outputs.clear();
  return loss.detach();
}

StageRunner::Pass StageRunner::take(int chunk, int micro) {
  auto found = under_way_.find({chunk, micro});
  YOKE_CHECK(found != under_way_.end(), "backward of micro-batch {} before its forward", micro);
  Pass pass = std::move(found->second);
  under_way_.erase(found);
  return pass;
}

StageRunner::Tensors StageRunner::backward(int chunk, int micro, const Tensors& gradients) {
  Pass pass = take(chunk, micro);
  compute::DeferredGradients::Use use(pass.weights.get());
  if (pass.loss.defined()) {
    scaler_.scale(pass.loss).backward();
  } else {
    Tensors roots;
    for (torch::Tensor& output : pass.outputs)
      if (output.requires_grad()) roots.push_back(std::move(output));
    YOKE_CHECK(roots.size() == gradients.size(), "{} outputs and {} gradients", roots.size(),
               gradients.size());
    torch::autograd::backward(roots, gradients);
  }
  Tensors back;
  for (const torch::Tensor& input : pass.inputs) {
    if (!input.requires_grad()) continue;
    back.push_back(input.grad().defined() ? input.grad() : torch::zeros_like(input));
  }
  if (layout_.request.kind == plan::ScheduleKind::kZbH1) put_off_[{chunk, micro}] = std::move(pass.weights);
  return back;
}

void StageRunner::weight(int chunk, int micro) {
  auto found = put_off_.find({chunk, micro});
  YOKE_CHECK(found != put_off_.end(), "weight gradients of micro-batch {} before its backward", micro);
  found->second->run();
  put_off_.erase(found);
  if (options_.after_weights) options_.after_weights();
}

StageRunner::Tensors StageRunner::evaluate(int chunk, const Tensors& inputs) {
  Tensors values = inputs;
  for (const RecomputeFunction& block : blocks_[static_cast<size_t>(chunk)]) values = block(values);
  return values;
}

}  // namespace yoke::parallel
