// LibTorch's threads, for our own kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace yoke::compute {

// Calls body(begin, end) on parts of [0, count), one part a thread of LibTorch's operators, and returns when
// all are done. The parts depend only on `count` and the number of threads. `body` must not call LibTorch's
// operators.
void parallel_for(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

// The same for work that touches `elements` numbers in all: little work runs in the calling thread, since
// waking another costs more.
void parallel_for(int64_t count, int64_t elements,
                  const std::function<void(int64_t begin, int64_t end)>& body);

// The number of parts parallel_for would make.
int64_t parallel_parts(int64_t count);

// As parallel_for, and tells which part it is, from 0.
void parallel_for_parts(int64_t count,
                        const std::function<void(int64_t part, int64_t begin, int64_t end)>& body);

}  // namespace yoke::compute
