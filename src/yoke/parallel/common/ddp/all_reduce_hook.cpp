#include "yoke/parallel/common/ddp/all_reduce_hook.h"

#include <fmt/format.h>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

bool AllReduceHook::advance(GradientBucket& bucket, int phase) {
  if (phase == 0) {
    bool mean = bucket.divisor == static_cast<double>(bucket.comm->size());
    if (!mean) bucket.flat.div_(bucket.divisor);  // divided first: fp16 sums may overflow where means do not
    std::string name = fmt::format("bucket {}", bucket.index);
    bucket.pending = bucket.comm->all_reduce(comm::buffer_of(bucket.flat),
                                             mean ? ReduceOp::kMean : ReduceOp::kSum, {.name = name});
    count(bucket, static_cast<int64_t>(bucket.flat.nbytes()));
    return true;
  }
  bucket.pending.wait();
  return false;
}

}  // namespace yoke::parallel
