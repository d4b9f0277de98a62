#include "yoke/parallel/common/ddp/reducer.h"

#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/common/ddp/all_reduce_hook.h"
#include "yoke/parallel/common/ddp/bucket_plan.h"

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
    : comm_(comm), give_up_(comm), options_(options), hook_(make_hook(options.hook)) {
  if (!hook_) hook_ = std::make_shared<AllReduceHook>();
  parameters_ = distinct_parameters(module);
  buffers_ = distinct_buffers(module);
  if (comm_.size() == 1) return;  // nothing to combine: no hooks are installed
  if (options.init_sync) {
    check_same_model(parameters_, buffers_, comm_);
    give_values(parameters_, comm_, 0);
    give_values(buffers_, comm_, 0);
  }
  find_parameters(module);
}

Reducer::~Reducer() {
  // After a failed backward(), buckets may still be in flight.
  auto done = [](const Bucket& bucket) { return bucket.data.pending.done(); };
  give_up_.before_wait([&] { return std::ranges::all_of(buckets_, done); }, "a backward()");
  for (const Bucket& bucket : buckets_) {
    try {
      bucket.data.pending.wait();
    } catch (const std::exception&) {  // reported to whoever waits for them
    }
  }
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
  gradient_hooks_.add(parameter, std::move(on_gradient));
}

// A sum is computed as the mean of gradients scaled beforehand. Thus a second backward() may add to gradients
// that are already combined: the mean of equal numbers leaves them unchanged.
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
  if (options_.find_unused || options_.static_graph || !sparse_.empty())
    throw ConfigError(
        "{}: every parameter must get a dense gradient in every step where buckets lie as they are told to "
        "(ZeRO).",
        !sparse_.empty() ? sparse_[0].name + " has sparse gradients" : "ddp.find_unused or ddp.static_graph");
  layout_ = std::move(layout);
  if (layout_.uses.empty() || slots_.empty()) return;
  YOKE_CHECK(layout_.uses.size() == slots_.size(), "uses of {} parameters, and there are {}",
             layout_.uses.size(), slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].expected = layout_.uses[i];
  make_places();
  end_round();
}

void Reducer::make_places() {
  buckets_ = make_buckets(slots_, layout_, comm_);
  for (Slot& slot : slots_) {
    if (layout_.passing) continue;
    move_into_bucket(slot, options_.gradient_as_bucket_view);
    if (options_.gradient_as_bucket_view && slot.view.is_contiguous()) homes.set(slot.parameter, slot.view);
  }
}

void Reducer::share_buffers() {
  if (comm_.size() > 1) give_values(buffers_, comm_, 0);
}

torch::Device Reducer::device() const {
  return parameters_.empty() ? torch::Device(torch::kCPU) : parameters_[0].second.device();
}

// ---- while backward() runs ----

// Called from backward(), right after autograd has accumulated a gradient of the parameter.
void Reducer::on_gradient(Slot& slot) {
  bool watching = buckets_.empty();
  homes.arrived(slot.parameter);
  if (!watching && !layout_.passing && (options_.gradient_as_bucket_view || sync))
    move_into_bucket(slot, options_.gradient_as_bucket_view);
  if (!sync) return;
  begin();
  ++slot.arrivals;
  if (watching) arrived_.push_back(&slot - slots_.data());
  bool counting = !counts_known_ && layout_.uses.empty();
  if (counting || options_.delay_allreduce) return;
  if (slot.arrivals > slot.expected)
    throw ConfigError(
        "parameter {}: a gradient came after its bucket had been sent ({} in this backward, {} in the first "
        "one). Where the graph changes from step to step, set ddp.delay_allreduce.",
        slot.name, slot.arrivals, slot.expected);
  if (slot.arrivals < slot.expected) return;
  if (--buckets_[slot.bucket].waiting == 0) advance_ready(buckets_.size() - 1);
}

// The first gradient of a backward() that communicates. The guard `round` is owned by autograd's
// end-of-backward callback: if backward() throws, the callback and the guard are destroyed, which is how the
// next backward() detects the failure.
void Reducer::begin() {
  if (begun_ && !round_.expired()) return;
  begun_ ? repeat_round() : start_round();
  begun_ = true;
  local_norm2_ = 0;
  // Buckets may be sent before finish() handles missing gradients, so fill those that never get one now.
  if (!buckets_.empty())
    for (Slot& slot : slots_)
      if (slot.expected == 0) fill_missing(slot, /*shadow=*/false);
  auto round = std::make_shared<char>();
  round_ = round;
  at_end_of_backward([this, round = std::move(round)] { finish(/*shadow=*/false); });
}

void Reducer::start_round() {
  start_counting();
  measuring_noise_ = std::exchange(noise_wanted_, false);
  divisor_ = joining_ ? active_ranks(true) : comm_.size();
}

void Reducer::reduce() {
  if (comm_.size() == 1) return;
  YOKE_CHECK(!begun_ && counts_known_ && sparse_.empty() && !joining_ && !layout_.passing,
             "reduce() needs the buckets that a backward() has formed, and dense gradients in them");
  start_round();
  local_norm2_ = 0;
  for (Slot& slot : slots_) slot.arrivals = slot.expected;
  finish(/*shadow=*/false);
}

// The previous backward() has failed, on this rank at least. If nothing was sent, this one replaces it: other
// ranks notice nothing.
void Reducer::repeat_round() {
  if (!sent_) return end_round();
  // The others wait for the rest of what was sent. An unexpected operation fails everybody immediately.
  torch::Tensor nothing = torch::zeros({1}, torch::kInt32).to(device());
  comm::all_reduce(comm_, nothing, ReduceOp::kSum, "backward() after one that failed half-way");
  throw CommError(
      "backward() on rank {} comes after one that failed when {} of {} buckets of gradients had been sent. "
      "They cannot be taken back: stop all ranks and resume from the last checkpoint.",
      comm_.rank(), next_, buckets_.size());
}

void Reducer::end_round() {
  for (Slot& slot : slots_) slot.arrivals = 0;
  for (SparseParameter& one : sparse_) one.arrived = false;
  for (Bucket& bucket : buckets_) {
    bucket.waiting = static_cast<size_t>(std::count_if(bucket.slots.begin(), bucket.slots.end(),
                                                       [&](size_t i) { return slots_[i].expected > 0; }));
    bucket.phase = 0;
  }
  arrived_.clear();
  next_ = 0;
  begun_ = false;
  sent_ = false;
}

void Reducer::start_counting() {
  step_ = {};
  bytes_before_ = comm_.counters().bytes_sent;
  saved_before_ = hook_->bytes_saved();
}

// Buckets are launched in index order only, although they may become ready in another: all ranks must issue
// the same operations in the same order, or collectives deadlock or mix up data.
void Reducer::advance_ready(size_t end) {
  while (next_ < end && buckets_[next_].waiting == 0) launch(buckets_[next_++]);
}

void Reducer::launch(Bucket& bucket) {
  sent_ = true;
  for (size_t i = 0; layout_.passing && i < bucket.slots.size(); ++i)
    bucket.data.parts[i] = take_gradient(slots_[bucket.slots[i]]);
  if (measuring_noise_ && !layout_.passing) local_norm2_ += norm2(bucket.data.flat);
  bucket.data.divisor = divisor_;
  bucket.data.seconds = 0;
  bucket.done = !hook_->advance(bucket.data, 0);
  fault::at(fault::Point::kDdpBucketSent);
  bucket.phase = 1;
  for (torch::Tensor& part : bucket.data.parts)
    if (layout_.passing) part.reset();
}

// ---- its end ----

// `shadow`: this rank has no batch (join()) and only takes part in the collectives of the others, with zeros.
// Both variants must issue the same operations in the same order.
void Reducer::finish(bool shadow) {
  double begin = now_seconds();
  if (!shadow) complain_of_missing();
  sent_ = true;
  bool watched = buckets_.empty();
  if (watched) agree_on_buckets();
  for (Slot& slot : slots_)
    if (slot.arrivals == 0 && slot.bucket >= next_ && !layout_.passing) fill_missing(slot, shadow);
  for (Bucket& bucket : buckets_) bucket.waiting = 0;
  advance_ready(buckets_.size());
  wait_for_buckets();
  if (options_.find_unused || (options_.static_graph && watched) || joining_) see_what_is_used(shadow);
  reduce_sparse(shadow);
  if (!shadow && !layout_.passing) hand_out();
  if (options_.broadcast_buffers) give_values(buffers_, comm_, 0);
  note_step(now_seconds() - begin);
  if (!shadow && !std::exchange(counts_known_, true))
    for (Slot& slot : slots_) slot.expected = std::max(options_.static_graph ? 0 : 1, slot.arrivals);
  end_round();
  ++steps_;
}

void Reducer::complain_of_missing() const {
  if (options_.find_unused || (options_.static_graph && !counts_known_)) return;
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

// Forms buckets in rank 0's order of readiness; gradients it has not seen come last.
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
  if (slots_.empty()) return;
  torch::Tensor agreed = torch::tensor(order, torch::kInt64).to(device());
  comm::broadcast(comm_, agreed, 0, "order of gradients");
  agreed = agreed.cpu();
  order.assign(agreed.const_data_ptr<int64_t>(), agreed.const_data_ptr<int64_t>() + agreed.numel());
  std::vector<GradientSize> sizes;
  for (const Slot& slot : slots_)
    sizes.push_back({slot.parameter.numel(), slot.parameter.scalar_type(), slot.parameter.device()});
  if (layout_.plan.empty())
    layout_.plan = plan_buckets(
        sizes, order, {options_.first_bucket_bytes, options_.bucket_bytes, options_.first_bucket_bytes});
  make_places();
}

// A parameter without a gradient contributes zeros, or what an earlier backward() of this step has left.
void Reducer::fill_missing(Slot& slot, bool shadow) {
  torch::NoGradGuard no_grad;
  if (slot.parameter.grad().defined() && !shadow)
    move_into_bucket(slot, options_.gradient_as_bucket_view);
  else
    slot.view.zero_();
}

void Reducer::see_what_is_used(bool shadow) {
  if (slots_.empty()) return;
  std::vector<int32_t> here;
  // The gradient may be from an earlier backward() of this step, under no_sync().
  for (const Slot& slot : slots_)
    here.push_back(!shadow && (slot.arrivals > 0 || slot.parameter.grad().defined()) ? 1 : 0);
  torch::Tensor used = torch::tensor(here, torch::kInt32).to(device());
  comm::all_reduce(comm_, used, ReduceOp::kMax, "parameters in use");
  used = used.cpu();
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].used = used.const_data_ptr<int32_t>()[i] != 0;
}

// All buckets pass a phase before the next phase starts, so that a hook's operations overlap across buckets.
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
    step_.buckets.push_back({times.started, times.ended, bucket.data.bytes()});
    step_.comm_seconds += bucket.data.seconds + times.ended - times.started;
    bucket.data.pending = {};
  }
  // The time after backward includes copying gradients: not more was waited for than there was communication.
  step_.exposed_seconds = std::min(waited, step_.comm_seconds);
  if (!measuring_noise_) return;
  torch::Tensor mean = torch::tensor({local_norm2_}, torch::kFloat64).to(device());
  comm::all_reduce(comm_, mean, ReduceOp::kMean, "gradient noise");
  step_.small_norm2 = mean.item<double>();
  for (const Bucket& bucket : buckets_)
    if (!layout_.passing) step_.big_norm2 += norm2(bucket.data.flat);
}

}  // namespace yoke::parallel
