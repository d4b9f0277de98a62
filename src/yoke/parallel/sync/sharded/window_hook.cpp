#include "yoke/parallel/sync/sharded/window_hook.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/buckets.h"

namespace yoke::parallel {
namespace {

// Elements [begin, begin + to.numel()) of the bucket's gradients, divided, one behind the other; zeros where
// there are none.
void copy_run(const GradientBucket& bucket, int64_t begin, double divisor, torch::Tensor to) {
  int64_t end = begin + to.numel(), copied = 0;
  for (size_t i = 0; i < bucket.parts.size(); ++i) {
    const torch::Tensor& part = bucket.parts[i];
    if (!part.defined()) continue;
    int64_t first = std::max(begin, bucket.offsets[i]),
            last = std::min(end, bucket.offsets[i] + part.numel());
    if (first >= last) continue;
    if (first - begin > copied) to.narrow(0, copied, first - begin - copied).zero_();
    torch::Tensor here = to.narrow(0, first - begin, last - first);
    torch::Tensor run = part.narrow(0, first - bucket.offsets[i], last - first);
    divisor == 1 ? here.copy_(run) : torch::div_out(here, run, torch::scalar_to_tensor(divisor));
    copied = last - begin;
  }
  to.narrow(0, copied, to.numel() - copied).zero_();
}

}  // namespace

WindowHook::~WindowHook() {
  auto done = [](const Window& window) { return window.pending.done(); };
  if (give_up_) give_up_->before_wait([&] { return std::ranges::all_of(windows_, done); }, "a backward()");
  for (Window& window : windows_) {
    try {
      window.pending.wait();
    } catch (const std::exception&) {  // after a backward() that failed; whoever needs it hears of it
    }
  }
}

torch::TensorOptions WindowHook::wire(const GradientBucket& bucket) const {
  return cast_ ? bucket.options.dtype(*cast_) : bucket.options;
}

bool WindowHook::advance(GradientBucket& bucket, int phase) {
  torch::NoGradGuard no_grad;
  if (phase > 0) {
    for (Window& window : windows_)
      if (window.bucket == &bucket) empty(window);
    return false;
  }
  if (!give_up_) give_up_.emplace(*bucket.comm);
  int64_t ranks = bucket.comm->size();
  const auto size = static_cast<int64_t>(wire(bucket).dtype().itemsize());
  int64_t run = std::max<int64_t>(1, window_bytes_ / size / ranks);
  torch::Tensor& part = part_of(bucket);
  bool add = part.defined();
  if (!add) part = torch::empty({bucket.elements / ranks}, bucket.options);
  for (int64_t begin = 0; begin < part.numel(); begin += run)
    send(bucket, part.narrow(0, begin, std::min(run, part.numel() - begin)), begin, add);
  count(bucket, bucket.elements * size);
  return true;
}

void WindowHook::send(GradientBucket& bucket, const torch::Tensor& into, int64_t begin, bool add) {
  Window& window = windows_[next_++ % kWindows];
  empty(window);
  if (!window.memory.data)
    window.memory = bucket.comm->allocate(static_cast<size_t>(
        std::max<int64_t>(window_bytes_, bucket.comm->size() * static_cast<int64_t>(sizeof(double)))));
  int64_t ranks = bucket.comm->size(), run = into.numel(), each = bucket.elements / ranks;
  torch::Tensor rows = tensor_over(window.memory, ranks * run, wire(bucket));
  // Narrow sums are of quotients, so that they overflow no earlier than one rank's gradient.
  const bool narrow = rows.scalar_type() != into.scalar_type();
  const bool mean = !narrow && bucket.divisor == static_cast<double>(ranks);
  for (int64_t rank = 0; rank < ranks; ++rank)
    copy_run(bucket, rank * each + begin, mean ? 1 : bucket.divisor, rows.narrow(0, rank * run, run));
  window.own = rows.narrow(0, bucket.comm->rank() * run, run);
  window.into = into;
  window.add = add;
  window.last = begin + run == each;
  window.bucket = &bucket;
  std::string name = fmt::format("bucket {}", bucket.index);
  window.pending = bucket.comm->reduce_scatter(comm::buffer_of(rows), comm::buffer_of(window.own),
                                               mean ? ReduceOp::kMean : ReduceOp::kSum, {.name = name});
  bucket.pending = window.pending;
}

void WindowHook::empty(Window& window) {
  if (!window.into.defined()) return;
  window.pending.wait();
  GradientBucket& bucket = *window.bucket;
  window.add ? window.into.add_(window.own) : window.into.copy_(window.own);
  comm::Pending::Timing times = window.pending.timing();
  if (!window.last) bucket.seconds += times.ended - times.started;
  window.into = torch::Tensor();
  window.bucket = nullptr;
}

}  // namespace yoke::parallel
