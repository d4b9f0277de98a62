#include "yoke/parallel/ddp/reducer.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/ddp/all_reduce_hook.h"
#include "yoke/parallel/ddp/bucket_plan.h"

namespace yoke::parallel {
namespace {

std::unordered_set<const void*> sparse_weights(const torch::nn::Module& module) {
  std::unordered_set<const void*> found;
  for (const auto& part : module.modules()) {
    if (auto* one = part->as<torch::nn::Embedding>(); one != nullptr && one->options.sparse())
      found.insert(one->weight.unsafeGetTensorImpl());
    if (auto* bag = part->as<torch::nn::EmbeddingBag>(); bag != nullptr && bag->options.sparse())
      found.insert(bag->weight.unsafeGetTensorImpl());
  }
  return found;
}

double norm2(const torch::Tensor& flat) {
  return flat.detach().to(torch::kFloat32).square().sum(torch::kFloat64).item<double>();
}

}  // namespace

Reducer::Reducer(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options)
    : comm_(comm), options_(options), hook_(make_hook(options.hook)) {
  if (!hook_) hook_ = std::make_shared<AllReduceHook>();
  parameters_ = distinct_parameters(module);
  buffers_ = distinct_buffers(module);
  if (comm_.size() == 1) return;  // nothing to combine: backward() is left alone
  if (options.init_sync) {
    check_same_model(parameters_, buffers_, comm_);
    give_values(parameters_, comm_, 0);
    give_values(buffers_, comm_, 0);
  }
  find_parameters(module);
}

Reducer::~Reducer() {
  for (InstalledHook& one : installed_) one.accumulator->del_post_hook(one.key);
  for (size_t i = 0; i < scaled_.size(); ++i) scaled_[i].remove_hook(scaling_hooks_[i]);
}

void Reducer::find_parameters(torch::nn::Module& module) {
  std::unordered_set<const void*> sparse = sparse_weights(module);
  for (const auto& [name, parameter] : parameters_) {
    if (!parameter.requires_grad()) continue;
    if (sparse.count(parameter.unsafeGetTensorImpl()) > 0)
      sparse_.push_back({name, parameter});
    else
      slots_.push_back({name, parameter, {}});
  }
  for (Slot& slot : slots_) install(slot.parameter, [this, &slot] { on_gradient(slot); });
  for (SparseParameter& one : sparse_)
    install(one.parameter, [this, &one] {
      if (!sync) return;
      begin();
      one.arrived = true;
    });
}

void Reducer::install(const torch::Tensor& parameter, std::function<void()> on_gradient) {
  if (options_.reduction == "sum") scale_for_sum(parameter);
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  using torch::autograd::variable_list;
  uintptr_t key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [on_gradient = std::move(on_gradient)](const variable_list& outputs, const variable_list&) {
        on_gradient();
        return outputs;
      }));
  installed_.push_back({std::move(accumulator), key});
}

// A sum is the mean of gradients that were multiplied beforehand. So a second backward() may add to gradients
// that have been combined already: the mean of equal numbers leaves them as they are.
void Reducer::scale_for_sum(const torch::Tensor& parameter) {
  scaled_.push_back(parameter);
  scaling_hooks_.push_back(parameter.register_hook(
      [size = comm_.size()](const torch::Tensor& gradient) { return gradient * size; }));
}

void Reducer::set_hook(std::shared_ptr<CommHook> hook) {
  YOKE_CHECK(buckets_.empty(), "set_hook() comes before the first backward()");
  YOKE_CHECK(hook != nullptr, "set_hook() without a hook");
  hook_ = std::move(hook);
}

void Reducer::set_layout(BucketLayout layout) {
  YOKE_CHECK(buckets_.empty(), "set_layout() comes before the first backward()");
  YOKE_CHECK(!options_.find_unused && !options_.static_graph && sparse_.empty(),
             "a layout of one's own with parameters that get no gradient, or sparse ones");
  layout_ = std::move(layout);
}

torch::Device Reducer::device() const {
  return parameters_.empty() ? torch::Device(torch::kCPU) : parameters_[0].second.device();
}

// ---- while backward() runs ----

void Reducer::on_gradient(Slot& slot) {
  bool watching = buckets_.empty();
  homes.arrived(slot.parameter);
  if (!watching && !passing() && (options_.gradient_as_bucket_view || sync))
    move_into_bucket(slot, options_.gradient_as_bucket_view);
  if (!sync) return;
  begin();
  ++slot.arrivals;
  if (watching || options_.delay_allreduce) {
    if (watching) arrived_.push_back(&slot - slots_.data());
    return;
  }
  if (slot.arrivals > slot.expected)
    throw ConfigError(
        "parameter {}: a gradient came after its bucket had been sent ({} in this backward, {} in the first "
        "one). Where the graph changes from step to step, set ddp.delay_allreduce; after a backward() that "
        "failed, make a new DistributedDataParallel.",
        slot.name, slot.arrivals, slot.expected);
  if (slot.arrivals < slot.expected) return;
  if (--buckets_[slot.bucket].waiting == 0) advance_ready();
}

// The first gradient of a backward() that communicates.
void Reducer::begin() {
  if (begun_) return;
  begun_ = true;
  start_counting();
  measuring_noise_ = std::exchange(noise_wanted_, false);
  local_norm2_ = 0;
  divisor_ = joining_ ? active_ranks(true) : comm_.size();
  // Buckets may be sent before finish() looks at what is missing.
  if (!buckets_.empty())
    for (Slot& slot : slots_)
      if (slot.expected == 0) fill_missing(slot, /*shadow=*/false);
  at_end_of_backward([this] { finish(/*shadow=*/false); });
}

void Reducer::start_counting() {
  step_ = {};
  bytes_before_ = comm_.counters().bytes_sent;
  saved_before_ = hook_->bytes_saved();
}

void Reducer::advance_ready() {
  while (next_ < buckets_.size() && buckets_[next_].waiting == 0) launch(buckets_[next_++]);
}

void Reducer::finish_bucket(Bucket& bucket) {
  while (!bucket.done) bucket.done = !hook_->advance(bucket.data, bucket.phase++);
}

void Reducer::move_gradients_to_block(Bucket& bucket) {
  auto index = static_cast<size_t>(&bucket - buckets_.data());
  if (index >= layout_.blocks) finish_bucket(buckets_[index - layout_.blocks]);
  for (size_t slot : bucket.slots) {
    move_into_bucket(slots_[slot], /*as_view=*/false);
    slots_[slot].parameter.mutable_grad().reset();
  }
}

void Reducer::launch(Bucket& bucket) {
  if (passing()) move_gradients_to_block(bucket);
  if (measuring_noise_) local_norm2_ += norm2(bucket.data.flat);
  bucket.data.divisor = divisor_;
  bucket.done = !hook_->advance(bucket.data, 0);
  bucket.phase = 1;
}

// ---- its end ----

void Reducer::finish(bool shadow) {
  double begin = now_seconds();
  if (!shadow) complain_of_missing();
  bool watched = buckets_.empty();
  if (watched) agree_on_buckets();
  for (Slot& slot : slots_)
    if (slot.arrivals == 0 && !passing()) fill_missing(slot, shadow);
  for (Bucket& bucket : buckets_) bucket.waiting = 0;
  advance_ready();
  wait_for_buckets();
  if (options_.find_unused || (options_.static_graph && watched) || joining_) see_what_is_used();
  reduce_sparse(shadow);
  if (!shadow && !passing()) hand_out();
  if (options_.broadcast_buffers) give_values(buffers_, comm_, 0);
  note_step(now_seconds() - begin);
  if (options_.static_graph && watched)
    for (Slot& slot : slots_) slot.expected = slot.arrivals;
  for (Slot& slot : slots_) slot.arrivals = 0;
  for (SparseParameter& one : sparse_) one.arrived = false;
  for (Bucket& bucket : buckets_) {
    bucket.waiting = static_cast<size_t>(std::count_if(bucket.slots.begin(), bucket.slots.end(),
                                                       [&](size_t i) { return slots_[i].expected > 0; }));
    bucket.phase = 0;
  }
  next_ = 0;
  begun_ = false;
  ++steps_;
}

void Reducer::complain_of_missing() const {
  if (options_.find_unused || (options_.static_graph && buckets_.empty())) return;
  std::vector<std::string> missing;
  for (const Slot& slot : slots_)
    if (slot.arrivals == 0 && slot.expected > 0) missing.push_back(slot.name);
  for (const SparseParameter& one : sparse_)
    if (!one.arrived) missing.push_back(one.name);
  if (missing.empty()) return;
  throw ConfigError(
      "backward() gave no gradient to {}{} (rank {}). Freeze what is not trained (requires_grad_(false)), or "
      "set ddp.static_graph when it is the same in every step, ddp.find_unused when it changes.",
      missing[0], missing.size() > 1 ? fmt::format(" and {} more parameters", missing.size() - 1) : "",
      comm_.rank());
}

// Buckets as rank 0 has seen its gradients come; what it has not seen comes last.
void Reducer::agree_on_buckets() {
  std::vector<int64_t> order;
  std::vector<bool> seen(slots_.size(), false);
  auto add = [&](int64_t index) {
    if (!seen[static_cast<size_t>(index)]) order.push_back(index);
    seen[static_cast<size_t>(index)] = true;
  };
  // A parameter is ready with its last gradient.
  for (auto at = arrived_.rbegin(); at != arrived_.rend(); ++at) add(*at);
  std::reverse(order.begin(), order.end());
  for (auto index = static_cast<int64_t>(slots_.size()) - 1; index >= 0; --index) add(index);
  arrived_.clear();
  if (slots_.empty()) return;
  torch::Tensor agreed = torch::tensor(order, torch::kInt64).to(device());
  comm::broadcast(comm_, agreed, 0, "order of gradients");
  agreed = agreed.cpu();
  order.assign(agreed.const_data_ptr<int64_t>(), agreed.const_data_ptr<int64_t>() + agreed.numel());
  std::vector<GradientSize> sizes;
  for (const Slot& slot : slots_)
    sizes.push_back({slot.parameter.numel(), slot.parameter.scalar_type(), slot.parameter.device()});
  if (layout_.plan.empty())
    layout_.plan = plan_buckets(sizes, order, {options_.first_bucket_bytes, options_.bucket_bytes});
  buckets_ = make_buckets(slots_, layout_, comm_);
  for (Slot& slot : slots_) {
    slot.expected = std::max(1, slot.arrivals);
    if (passing()) continue;
    move_into_bucket(slot, options_.gradient_as_bucket_view);
    if (options_.gradient_as_bucket_view && slot.view.is_contiguous()) homes.set(slot.parameter, slot.view);
  }
}

// What got no gradient here gives nothing to the sum, or what an earlier backward() of this step has left.
void Reducer::fill_missing(Slot& slot, bool shadow) {
  torch::NoGradGuard no_grad;
  if (slot.parameter.grad().defined() && !shadow)
    move_into_bucket(slot, options_.gradient_as_bucket_view);
  else
    slot.view.zero_();
}

void Reducer::see_what_is_used() {
  if (slots_.empty()) return;
  std::vector<int32_t> here;
  for (const Slot& slot : slots_) here.push_back(slot.arrivals > 0 ? 1 : 0);
  torch::Tensor used = torch::tensor(here, torch::kInt32).to(device());
  comm::all_reduce(comm_, used, ReduceOp::kMax, "parameters in use");
  used = used.cpu();
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].used = used.const_data_ptr<int32_t>()[i] != 0;
}

void Reducer::wait_for_buckets() {
  bool more = true;
  while (more) {
    more = false;
    for (Bucket& bucket : buckets_) {
      if (bucket.done) continue;
      bucket.done = !hook_->advance(bucket.data, bucket.phase++);
      more = more || !bucket.done;
    }
  }
}

void Reducer::hand_out() {
  torch::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    torch::Tensor& gradient = slot.parameter.mutable_grad();
    if (!slot.used) continue;
    if (options_.gradient_as_bucket_view)
      gradient = gradient_in(slot);
    else if (gradient.defined())
      gradient.copy_(slot.view);
    else
      gradient = slot.view.clone();
  }
}

void Reducer::note_step(double waited) {
  step_.bytes_sent = comm_.counters().bytes_sent - bytes_before_;
  step_.bytes_saved = hook_->bytes_saved() - saved_before_;
  for (Bucket& bucket : buckets_) {
    comm::Pending::Timing times = bucket.data.pending.timing();
    step_.buckets.push_back({times.started, times.ended, static_cast<int64_t>(bucket.data.flat.nbytes())});
    step_.comm_seconds += times.ended - times.started;
    bucket.data.pending = {};
  }
  // The end of backward also hands gradients out: no more was waited for than there was.
  step_.exposed_seconds = std::min(waited, step_.comm_seconds);
  if (!measuring_noise_) return;
  torch::Tensor mean = torch::tensor({local_norm2_}, torch::kFloat64).to(device());
  comm::all_reduce(comm_, mean, ReduceOp::kMean, "gradient noise");
  step_.small_norm2 = mean.item<double>();
  for (const Bucket& bucket : buckets_) step_.big_norm2 += norm2(bucket.data.flat);
}

}  // namespace yoke::parallel
