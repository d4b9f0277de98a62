#include "yoke/comm/shared/limit.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/shared/backend.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm {
namespace {

struct Part {
  size_t begin = 0;
  size_t bytes = 0;
};

Part part_of(size_t bytes, int rank, int size) {
  size_t floats = bytes / sizeof(float), ranks = static_cast<size_t>(size), r = static_cast<size_t>(rank);
  size_t begin = floats * r / ranks, end = floats * (r + 1) / ranks;
  return {begin * sizeof(float), (end - begin) * sizeof(float)};
}

void sum_own_part(const std::vector<std::byte*>& buffers, int rank, size_t bytes) {
  Part part = part_of(bytes, rank, static_cast<int>(buffers.size()));
  std::vector<const void*> sources;
  for (std::byte* buffer : buffers) sources.push_back(buffer + part.begin);
  void* out = buffers[static_cast<size_t>(rank)] + part.begin;
  kernels::reduce({&out, 1}, sources, part.bytes / sizeof(float), DataType::kFloat32, ReduceOp::kSum);
}

void copy_other_parts(const std::vector<std::byte*>& buffers, int rank, size_t bytes) {
  for (size_t r = 0; r < buffers.size(); ++r) {
    if (static_cast<int>(r) == rank) continue;
    Part part = part_of(bytes, static_cast<int>(r), static_cast<int>(buffers.size()));
    std::memcpy(buffers[static_cast<size_t>(rank)] + part.begin, buffers[r] + part.begin, part.bytes);
  }
}

}  // namespace

double in_place_limit(Backend& backend, size_t bytes, int repeats, const Deadline& deadline) {
  auto* group = dynamic_cast<shared::SharedBackend*>(&backend);
  if (!group || repeats < 1)
    throw ConfigError(
        "the in-place limit of backend '{}' ({} repeats) cannot be measured. Accepted: shm, local.",
        backend.name(), repeats);
  Memory memory = group->allocate(bytes);
  std::memset(memory.data.get(), 0, bytes);
  std::vector<std::byte*> buffers = group->everybodys(memory, deadline);
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    group->meet(deadline);
    double begin = now_seconds();
    sum_own_part(buffers, group->rank(), bytes);
    group->meet(deadline);
    copy_other_parts(buffers, group->rank(), bytes);
    group->meet(deadline);
    if (i > 0) seconds.push_back(now_seconds() - begin);  // the first warms up
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace yoke::comm
