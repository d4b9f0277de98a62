// How numbers are packed into fewer bytes and added up again: by the kernels of kernels/compress.h in host
// memory, by LibTorch's operators on other devices. Who sends them where is the hooks' business.
//
// Both give the same bytes, but for the scales of signs and for which of equally large numbers is kept; what
// they add differs in the last bit at most (the kernels multiply and add in one step).
//
// x, out and start are contiguous, of one dimension and one type, fp32 or fp64. What was packed comes as one
// row for each rank, [ranks, …], with strides of its own and at least as many numbers as `x` or `out` need.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace yoke::parallel {

// out = start + what ranks `first_rank` and so on packed / divisor, in the order of ranks. `start` may be
// `out`; not defined it counts as 0.
struct PackedSum {
  torch::Tensor out, start;
  int64_t first_rank, ranks;
  double divisor;
};
// One after the other, in one pass over the memory where that can be. All are of the same length. Those whose
// `out` is not defined do not count; the last one is.
using Sums = std::initializer_list<PackedSum>;

class Packing {
 public:
  virtual ~Packing() = default;

  // A byte a number, and one fp32 scale for each kernels::kQuantumChunk of them.
  virtual void quantise(const torch::Tensor& x, const torch::Tensor& scales,
                        const torch::Tensor& quanta) const = 0;
  // A bit a number, and one fp32 scale for each kernels::kSignChunk of them.
  virtual void pack_signs(const torch::Tensor& x, const torch::Tensor& scales,
                          const torch::Tensor& bits) const = 0;
  // As many of the largest magnitudes as `values` has room for, and their int32 places in ascending order.
  virtual void find_largest(const torch::Tensor& x, const torch::Tensor& values,
                            const torch::Tensor& places) const = 0;

  virtual void add_quanta(Sums sums, const torch::Tensor& scales, const torch::Tensor& quanta) const = 0;
  virtual void add_signs(Sums sums, const torch::Tensor& scales, const torch::Tensor& bits) const = 0;
  virtual void add_places(Sums sums, const torch::Tensor& values, const torch::Tensor& places) const = 0;

  // Calls write(fresh) once, and replaces `target` by what is in `fresh` then, but leaves it as it was where
  // one of `numbers` is not finite. `fresh` may be not defined where that is known before.
  virtual void replace_if_finite(const torch::Tensor& target, const torch::Tensor& numbers,
                                 const std::function<void(const torch::Tensor& fresh)>& write) const = 0;
};

// Host memory only.
const Packing& packing_by_kernels();
// Any device. Never waits for it.
const Packing& packing_by_operators();

inline const Packing& packing_on(torch::Device device) {
  return device.is_cpu() ? packing_by_kernels() : packing_by_operators();
}
using PackingOn = const Packing& (*)(torch::Device device);

}  // namespace yoke::parallel
