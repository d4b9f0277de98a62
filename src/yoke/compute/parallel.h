// LibTorch's threads, for our own kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace yoke::compute {

// Calls body(begin, end) on parts of [0, count), one part per intra-op thread of LibTorch, and returns when
// all are done. The parts depend only on `count` and the number of threads. `body` must not call LibTorch
// operators.
void parallel_for(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

// The same for work that touches `elements` values in total: little work runs in the calling thread, because
// waking another costs more.
void parallel_for(int64_t count, int64_t elements,
                  const std::function<void(int64_t begin, int64_t end)>& body);

// The number of parts parallel_for() would use.
int64_t parallel_parts(int64_t count);

// Like parallel_for(), with the index of the part.
void parallel_for_parts(int64_t count,
                        const std::function<void(int64_t part, int64_t begin, int64_t end)>& body);

}  // namespace yoke::compute
