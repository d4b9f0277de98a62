#include "yoke/parallel/common/ddp/bucket_plan.h"

namespace yoke::parallel {

std::vector<std::vector<int64_t>> plan_buckets(const std::vector<GradientSize>& gradients,
                                               const std::vector<int64_t>& order, const BucketSizes& sizes) {
  std::vector<std::vector<int64_t>> buckets;
  int64_t filled = 0;
  for (int64_t index : order) {
    const GradientSize& one = gradients[static_cast<size_t>(index)];
    int64_t limit = buckets.size() <= 1 ? sizes.first_bytes : sizes.bytes;
    bool open = !buckets.empty() && filled < limit;
    if (open) {
      const GradientSize& before = gradients[static_cast<size_t>(buckets.back().back())];
      open = before.type == one.type && before.device == one.device;
    }
    if (!open) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(index);
    filled += one.elements * static_cast<int64_t>(c10::elementSize(one.type));
  }
  return buckets;
}

}  // namespace yoke::parallel
