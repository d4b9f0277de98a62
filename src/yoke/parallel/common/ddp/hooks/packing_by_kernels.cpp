#include <algorithm>
#include <cmath>

#include "yoke/kernels/compress.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/common/ddp/hooks/packing.h"

namespace yoke::parallel {
namespace {

using kernels::kQuantumChunk;
using kernels::kSignChunk;
using torch::Tensor;

template <class T>
T* row_of(const Tensor& rows, int64_t row) {
  return rows.data_ptr<T>() + row * rows.stride(0);
}

template <class T>
void begin_with(const PackedSum& sum, int64_t begin, int64_t end) {
  T* to = sum.out.data_ptr<T>();
  const T* from = sum.start.defined() ? sum.start.const_data_ptr<T>() : nullptr;
  if (from == nullptr)
    std::fill(to + begin, to + end, T{0});
  else if (from != to)
    std::copy(from + begin, from + end, to + begin);
}

// Calls add(out + begin, begin, end, rank, factor) for every rank of every sum, in blocks that stay in cache.
template <class Add>
void add_in_blocks(Sums sums, int64_t chunk, Add&& add) {
  const Tensor& last = (sums.end() - 1)->out;
  with_type(last, [&](auto t) {
    using T = decltype(t);
    for_blocks(last.numel(), chunk, [&](int64_t begin, int64_t end) {
      for (const PackedSum& sum : sums) {
        if (!sum.out.defined()) continue;
        begin_with<T>(sum, begin, end);
        for (int64_t i = 0; i < sum.ranks; ++i)
          add(sum.out.data_ptr<T>() + begin, begin, end, sum.first_rank + i, 1 / sum.divisor);
      }
    });
  });
}

template <class T>
void add_places_of(const PackedSum& sum, const Tensor& values, const Tensor& places) {
  begin_with<T>(sum, 0, sum.out.numel());
  T* to = sum.out.data_ptr<T>();
  for (int64_t rank = sum.first_rank; rank < sum.first_rank + sum.ranks; ++rank) {
    const T* from = row_of<T>(values, rank);
    const int32_t* at = row_of<int32_t>(places, rank);
    for (int64_t i = 0; i < values.size(1); ++i) to[at[i]] += from[i] / static_cast<T>(sum.divisor);
  }
}

bool all_rows_finite(const Tensor& rows) {
  bool finite = true;
  with_type(rows, [&](auto t) {
    for (int64_t row = 0; row < rows.size(0); ++row) {
      const auto* x = row_of<decltype(t)>(rows, row);
      for (int64_t i = 0; i < rows.size(1); ++i) finite &= std::isfinite(x[i]);
    }
  });
  return finite;
}

class PackingByKernels final : public Packing {
 public:
  void quantise(const Tensor& x, const Tensor& scales, const Tensor& quanta) const override {
    auto* to_scales = scales.data_ptr<float>();
    auto* to_quanta = quanta.data_ptr<int8_t>();
    with_type(x, [&](auto t) {
      const auto* from = x.const_data_ptr<decltype(t)>();
      for_blocks(x.numel(), kQuantumChunk, [&](int64_t begin, int64_t end) {
        kernels::quantise(from + begin, end - begin, to_scales + begin / kQuantumChunk, to_quanta + begin);
      });
    });
  }

  void pack_signs(const Tensor& x, const Tensor& scales, const Tensor& bits) const override {
    auto* to_scales = scales.data_ptr<float>();
    auto* to_bits = bits.data_ptr<uint8_t>();
    with_type(x, [&](auto t) {
      const auto* from = x.const_data_ptr<decltype(t)>();
      for_blocks(x.numel(), kSignChunk, [&](int64_t begin, int64_t end) {
        kernels::pack_signs(from + begin, end - begin, to_scales + begin / kSignChunk, to_bits + begin / 8);
      });
    });
  }

  void find_largest(const Tensor& x, const Tensor& values, const Tensor& places) const override {
    int32_t* at = places.data_ptr<int32_t>();
    with_type(x, [&](auto t) {
      using T = decltype(t);
      const T* from = x.const_data_ptr<T>();
      T* to = values.data_ptr<T>();
      kernels::largest_magnitudes(from, x.numel(), values.numel(), at);
      for (int64_t i = 0; i < values.numel(); ++i) to[i] = from[at[i]];
    });
  }

  void add_quanta(Sums sums, const Tensor& scales, const Tensor& quanta) const override {
    add_in_blocks(
        sums, kQuantumChunk, [&](auto* to, int64_t begin, int64_t end, int64_t rank, double factor) {
          kernels::add_quanta(to, row_of<int8_t>(quanta, rank) + begin,
                              row_of<float>(scales, rank) + begin / kQuantumChunk, end - begin, factor);
        });
  }

  void add_signs(Sums sums, const Tensor& scales, const Tensor& bits) const override {
    add_in_blocks(sums, kSignChunk, [&](auto* to, int64_t begin, int64_t end, int64_t rank, double factor) {
      kernels::add_signs(to, row_of<uint8_t>(bits, rank) + begin / 8,
                         row_of<float>(scales, rank) + begin / kSignChunk, end - begin, factor);
    });
  }

  void add_places(Sums sums, const Tensor& values, const Tensor& places) const override {
    for (const PackedSum& sum : sums)
      if (sum.out.defined())
        with_type(sum.out, [&](auto t) { add_places_of<decltype(t)>(sum, values, places); });
  }

  void replace_if_finite(const Tensor& target, const Tensor& numbers,
                         const std::function<void(const Tensor& fresh)>& write) const override {
    write(all_rows_finite(numbers) ? target : Tensor());
  }
};

}  // namespace

const Packing& packing_by_kernels() {
  static const PackingByKernels packing;
  return packing;
}

}  // namespace yoke::parallel
