#include "yoke/parallel/sync/sharded/scatter_hook.h"

#include <fmt/format.h>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/sync/sharded/window_hook.h"

namespace yoke::parallel {

namespace {

torch::Tensor own_part(const GradientBucket& bucket, const torch::Tensor& flat) {
  const int64_t elements = bucket.elements / bucket.comm->size();
  return flat.narrow(0, elements * bucket.comm->rank(), elements);
}

}  // namespace

bool ScatterHook::advance(GradientBucket& bucket, int phase) {
  torch::NoGradGuard no_grad;
  const auto index = static_cast<size_t>(bucket.index);
  const bool narrow = cast_ && *cast_ != bucket.flat.scalar_type();
  if (phase == 0) {
    torch::Tensor wire = bucket.flat;
    // Narrow sums are of quotients, so that they overflow no earlier than one rank's gradient.
    const bool mean = !narrow && bucket.divisor == static_cast<double>(bucket.comm->size());
    if (!mean && bucket.divisor != 1) bucket.flat.div_(bucket.divisor);
    if (narrow) {
      if (narrow_.size() <= index) narrow_.resize(index + 1);
      if (!narrow_[index].defined()) narrow_[index] = wire_tensor(bucket, bucket.elements, *cast_);
      wire = narrow_[index].copy_(bucket.flat);
    }
    std::string name = fmt::format("bucket {}", bucket.index);
    bucket.pending =
        bucket.comm->reduce_scatter(comm::buffer_of(wire), comm::buffer_of(own_part(bucket, wire)),
                                    mean ? ReduceOp::kMean : ReduceOp::kSum, {.name = name});
    count(bucket, static_cast<int64_t>(wire.nbytes()));
    return true;
  }
  bucket.pending.wait();
  torch::Tensor own = own_part(bucket, bucket.flat);
  if (narrow) own.copy_(own_part(bucket, narrow_[index]));
  part_of(bucket) = own;
  return false;
}

bool WholeHook::advance(GradientBucket& bucket, int phase) {
  const int64_t before = whole_->bytes_compressed();
  const bool more = whole_->advance(bucket, phase);
  if (phase == 0) count(bucket, 0);
  count_compressed(whole_->bytes_compressed() - before);
  if (!more) part_of(bucket) = own_part(bucket, bucket.flat);
  return more;
}

std::shared_ptr<ShardHook> make_shard_hook(const std::string& hook, std::optional<int64_t> window_bytes) {
  const std::optional<torch::ScalarType> cast = cast_of_hook(hook);
  if (window_bytes) return std::make_shared<WindowHook>(*window_bytes, cast);
  if (cast || hook == "none") return std::make_shared<ScatterHook>(cast);
  return std::make_shared<WholeHook>(make_hook(hook));
}

}  // namespace yoke::parallel
