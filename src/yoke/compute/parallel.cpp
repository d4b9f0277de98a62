#include "yoke/compute/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace yoke::compute {

int64_t parallel_parts(int64_t count) {
  int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return std::max<int64_t>(1, std::min(count, threads));
}

// at::parallel_for is a template that is only parallel in code compiled with the OpenMP that LibTorch was
// built with. TensorIterator's loop is compiled into LibTorch and takes a function: one element of a byte
// tensor is one part of the work.
void parallel_for_parts(int64_t count,
                        const std::function<void(int64_t part, int64_t begin, int64_t end)>& body) {
  if (count <= 0) return;
  int64_t parts = parallel_parts(count);
  if (parts == 1) return body(0, 0, count);
  at::Tensor marks = at::empty({parts}, at::kByte);
  const char* base = static_cast<const char*>(marks.data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(marks);
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t size) {
        int64_t first = data[0] - base;
        for (int64_t part = first; part < first + size; ++part) {
          body(part, part * count / parts, (part + 1) * count / parts);
        }
      },
      /*grain_size=*/1);
}

void parallel_for(int64_t count, int64_t elements,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  if (count <= 0) return;
  if (elements < at::internal::GRAIN_SIZE) return body(0, count);
  parallel_for(count, body);
}

void parallel_for(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body) {
  parallel_for_parts(count, [&](int64_t, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace yoke::compute
