#include "yoke/engine/step_memory.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/clock.h"
#include "yoke/compute/device.h"
#include "yoke/compute/graph.h"
#include "yoke/compute/memory_meter.h"
#include "yoke/compute/recompute.h"
#include "yoke/compute/recompute_state.h"
#include "yoke/data/dataset.h"

namespace yoke::engine {
namespace {

int64_t total_bytes(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// Gradients persist between passes: buckets of replicas, servers' arrays, sums over micro-batches.
bool keeps_gradients(const WorkerOptions& options) {
  return options.accumulate > 1 || options.has_peers();
}

class Evaluating {
 public:
  explicit Evaluating(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~Evaluating() { module_.train(was_training_); }

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace

struct StepProbe::Sample {
  models::Tensors inputs;
  torch::Tensor target;
};

HeldMemory held_memory(Worker& worker) {
  HeldMemory held;
  held.weights = total_bytes(worker.model.module->parameters()) + total_bytes(worker.model.module->buffers());
  held.gradients = total_bytes(worker.model.module->parameters());
  if (!worker.optimizer) return held;
  for (const auto& [name, tensor] : worker.optimizer->state())
    held.optimizer += static_cast<int64_t>(tensor.nbytes());
  return held;
}

StepProbe::StepProbe(Worker& worker, const WorkerOptions& options)
    : worker_(worker),
      options_(options),
      parameters_(worker.model.module->parameters()),
      held_(held_memory(worker)) {
  for (const models::Block& block : worker.model.blocks) blocks_.push_back(block.forward);
  for (const torch::Tensor& parameter : parameters_) {
    bool narrow = parameter.element_size() < 4;
    if (narrow) update_bytes_ += 4 * parameter.numel();
  }
}

StepProbe::Sample StepProbe::sample(int64_t batch_size) const {
  data::DataOptions data;
  data.samples = batch_size;
  data.seq_len = options_.seq_len;
  std::vector<int64_t> indices(static_cast<size_t>(batch_size));
  std::iota(indices.begin(), indices.end(), 0);
  data::Batch batch =
      data::open(data, data::Split::kTrain, worker_.model.sample, /*seed=*/1)->gather(indices);
  for (torch::Tensor& input : batch.inputs) input = worker_.place(input);
  return {batch.inputs, batch.target.to(worker_.device)};
}

std::vector<compute::BlockCost> StepProbe::block_costs(int64_t batch_size) {
  AutocastGuard autocast(worker_.device.type(), worker_.autocast);
  return measure_blocks(blocks_, sample(batch_size).inputs);
}

void StepProbe::forward_and_backward(const Sample& sample, const std::vector<compute::Segment>& segments,
                                     const std::function<void()>& between) {
  RandomStateGuard later{RandomState(sample.inputs)};
  RecomputationMark leave_statistics;
  torch::Tensor loss;
  {
    AutocastGuard autocast(worker_.device.type(), worker_.autocast);
    loss = worker_.model.loss(run_blocks(blocks_, sample.inputs, segments), sample.target);
  }
  if (between) between();
  loss.backward();
}

void StepProbe::keep_gradients() {
  for (torch::Tensor& parameter : parameters_)
    if (parameter.requires_grad()) parameter.mutable_grad() = torch::zeros_like(parameter);
}

void StepProbe::drop_gradients() {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

template <class Work>
StepProbe::Peak StepProbe::peak_of(const Work& work) {
  compute::release_freed_memory(worker_.device);
  compute::reset_peak_memory(worker_.device);
  int64_t before = compute::memory_in_use_bytes(worker_.device);
  compute::MemoryMeter meter;
  // On the stream used to warm up real steps, whose workspaces persist.
  if (worker_.device.is_cuda())
    compute::DeviceGraph::warm_up(work);
  else
    work();
  int64_t peak = compute::peak_memory_bytes(worker_.device);
  // If the kernel does not allow resetting its peak, the meter keeps its own.
  if (worker_.device.is_cpu()) peak = std::max(peak, before + meter.peak_bytes());
  return {peak, meter.peak_bytes()};
}

StepProbe::Peak StepProbe::peak_of_pass(const std::vector<compute::Segment>& segments, int64_t batch_size) {
  drop_gradients();
  try {
    if (keeps_gradients(options_)) keep_gradients();
    Peak peak = peak_of([&] { forward_and_backward(sample(batch_size), segments); });
    drop_gradients();
    return peak;
  } catch (...) {
    drop_gradients();
    throw;
  }
}

int64_t StepProbe::pass_tensor_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size) {
  return peak_of_pass(segments, batch_size).tensors;
}

PassTrace StepProbe::trace(const std::vector<compute::Segment>& segments, int64_t batch_size) {
  PassTrace trace;
  const Sample one = sample(batch_size);
  keep_gradients();  // else each block's would be added to the curve
  auto pass = [&] {
    compute::MemoryMeter meter;
    Stopwatch watch;
    meter.keep_history();
    forward_and_backward(one, segments, [&] { trace.forward_end = watch.seconds(); });
    trace.points = meter.history();
  };
  if (worker_.device.is_cuda())
    compute::DeviceGraph::warm_up(pass);
  else
    pass();
  drop_gradients();
  return trace;
}

GradientSizes StepProbe::gradient_sizes(int64_t batch_size) {
  constexpr int kLowest = -160, kBins = 320;  // of fp32, subnormal numbers included
  drop_gradients();
  forward_and_backward(sample(batch_size), {});
  GradientSizes sizes;
  torch::Tensor counts = torch::zeros({kBins}, torch::kInt64);
  for (const torch::Tensor& parameter : parameters_) {
    if (!parameter.grad().defined()) continue;
    const torch::Tensor size = parameter.grad().detach().to(torch::kCPU, torch::kFloat).abs().flatten();
    const torch::Tensor kept = size.masked_select(size.gt(0).logical_and(size.isfinite()));
    sizes.zeros += size.eq(0).sum().item<int64_t>();
    // frexp() gives a fraction of at least a half.
    counts += torch::bincount(std::get<1>(torch::frexp(kept)).to(torch::kInt64) - 1 - kLowest, {}, kBins);
  }
  drop_gradients();
  const int64_t* first = counts.data_ptr<int64_t>();
  const int64_t *end = first + kBins, *from = first;
  while (from < end && *from == 0) ++from;
  while (end > from && end[-1] == 0) --end;
  sizes.lowest_exponent = kLowest + static_cast<int>(from - first);
  sizes.counts.assign(from, end);
  return sizes;
}

int64_t StepProbe::peak_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size) {
  int64_t pass = peak_of_pass(segments, batch_size).bytes;
  compute::release_freed_memory(worker_.device);
  return std::max(pass, compute::memory_in_use_bytes(worker_.device) + held_.gradients + update_bytes_);
}

int64_t StepProbe::evaluation_peak_bytes(int64_t batch_size) {
  drop_gradients();
  torch::NoGradGuard no_grad;
  torch::nn::Module& module = *worker_.model.module;
  const Evaluating evaluating(module);
  return peak_of([&] {
           AutocastGuard autocast(worker_.device.type(), worker_.autocast);
           Sample one = sample(batch_size);
           models::Tensors outputs = worker_.model.forward(one.inputs);
           worker_.model.loss(outputs, one.target);
           if (worker_.model.correct) worker_.model.correct(outputs, one.target);
         })
      .bytes;
}

int64_t StepNeeds::largest_batch(double free) const {
  return sample > 0 ? std::max<int64_t>(0, static_cast<int64_t>((free - base) / sample)) : 0;
}

StepNeeds step_needs(StepProbe& probe, const Worker& worker, const std::string& recompute) {
  constexpr int64_t kSmall = 4, kLarger = 12;  // BatchNorm needs at least two
  auto segments =
      compute::recompute_segments(recompute, std::vector<compute::BlockCost>(worker.model.blocks.size()));
  probe.pass_tensor_bytes(segments, kSmall);  // libraries allocate their workspaces
  auto small = static_cast<double>(probe.pass_tensor_bytes(segments, kSmall));
  auto larger = static_cast<double>(probe.pass_tensor_bytes(segments, kLarger));
  StepNeeds needs;
  needs.sample = std::max(1.0, (larger - small) / (kLarger - kSmall));
  needs.base = std::max(0.0, small - kSmall * needs.sample);
  return needs;
}

}  // namespace yoke::engine
