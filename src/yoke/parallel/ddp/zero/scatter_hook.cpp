#include "yoke/parallel/ddp/zero/scatter_hook.h"

#include <fmt/format.h>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

void ScatterHook::begin_step() {
  for (Part& part : parts_) part.fresh = true;
}

bool ScatterHook::advance(GradientBucket& bucket, int phase) {
  auto index = static_cast<size_t>(bucket.index);
  int64_t elements = bucket.flat.numel() / bucket.comm->size();
  torch::Tensor own = bucket.flat.narrow(0, elements * bucket.comm->rank(), elements);
  if (phase == 0) {
    bool mean = bucket.divisor == static_cast<double>(bucket.comm->size());
    std::string name = fmt::format("bucket {}", bucket.index);
    bucket.pending = bucket.comm->reduce_scatter(comm::buffer_of(bucket.flat), comm::buffer_of(own),
                                                 mean ? ReduceOp::kMean : ReduceOp::kSum, {.name = name});
    count(bucket, static_cast<int64_t>(bucket.flat.nbytes()));
    return true;
  }
  torch::NoGradGuard no_grad;
  bucket.pending.wait();
  if (bucket.divisor != static_cast<double>(bucket.comm->size())) own.div_(bucket.divisor);
  if (parts_.size() <= index) parts_.resize(index + 1);
  Part& part = parts_[index];
  if (!keep_)
    part.values = own;
  else if (!part.values.defined())
    part.values = own.clone();
  else if (part.fresh)
    part.values.copy_(own);
  else
    part.values.add_(own);
  part.fresh = false;
  return false;
}

}  // namespace yoke::parallel
