#include "yoke/parallel/common/ddp/bucket_plan.h"

namespace yoke::parallel {
namespace {

int64_t bytes_of(const GradientSize& one) {
  return one.elements * static_cast<int64_t>(c10::elementSize(one.type));
}

// The last bucket leaves when backward has ended: what is in it and was complete earlier leaves before.
void split_last(std::vector<std::vector<int64_t>>& buckets, const std::vector<GradientSize>& gradients,
                int64_t most_bytes) {
  if (buckets.empty() || most_bytes == 0) return;
  std::vector<int64_t>& last = buckets.back();
  size_t begin = last.size() - 1;
  int64_t bytes = bytes_of(gradients[static_cast<size_t>(last[begin])]);
  while (begin > 0) {
    bytes += bytes_of(gradients[static_cast<size_t>(last[begin - 1])]);
    if (bytes > most_bytes) break;
    --begin;
  }
  if (begin == 0) return;
  std::vector<int64_t> tail(last.begin() + static_cast<std::ptrdiff_t>(begin), last.end());
  last.resize(begin);
  buckets.push_back(std::move(tail));
}

}  // namespace

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
    filled += bytes_of(one);
  }
  split_last(buckets, gradients, sizes.last_bytes);
  return buckets;
}

}  // namespace yoke::parallel
