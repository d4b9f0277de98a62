#include "yoke/parallel/sync/sharded/scatter_hook.h"

#include <fmt/format.h>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

bool ScatterHook::advance(GradientBucket& bucket, int phase) {
  torch::NoGradGuard no_grad;
  int64_t elements = bucket.elements / bucket.comm->size();
  torch::Tensor own = bucket.flat.narrow(0, elements * bucket.comm->rank(), elements);
  if (phase == 0) {
    bool mean = bucket.divisor == static_cast<double>(bucket.comm->size());
    if (!mean) bucket.flat.div_(bucket.divisor);
    std::string name = fmt::format("bucket {}", bucket.index);
    bucket.pending = bucket.comm->reduce_scatter(comm::buffer_of(bucket.flat), comm::buffer_of(own),
                                                 mean ? ReduceOp::kMean : ReduceOp::kSum, {.name = name});
    count(bucket, bucket.bytes());
    return true;
  }
  bucket.pending.wait();
  part_of(bucket) = own;
  return false;
}

}  // namespace yoke::parallel
