// Packs numbers into fewer bytes and adds them up again: with the kernels of kernels/compress.h in host
// memory, with LibTorch operators on other devices. Communication is up to the hooks.
//
// Both produce the same bytes, except for the scales of signs and the choice among equally large numbers;
// sums differ in the last bit at most (the kernels use fused multiply-add).
//
// x, out and start are contiguous and one-dimensional, of one type, fp32 or fp64. Packed data is one row per
// rank, [ranks, …], with any stride and at least as many values as `x` or `out` need.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace yoke::parallel {

// out = start + (what ranks `first_rank`, … packed) / divisor, in rank order. `start` may be `out`; undefined
// counts as 0.
struct PackedSum {
  torch::Tensor out, start;
  int64_t first_rank, ranks;
  double divisor;
};
// Executed in order, in one pass over memory if possible. All have the same length. Entries whose `out` is
// undefined are skipped; the last one is defined.
using Sums = std::initializer_list<PackedSum>;

class Packing {
 public:
  virtual ~Packing() = default;

  // One byte per value, and one fp32 scale per kernels::kQuantumChunk values.
  virtual void quantise(const torch::Tensor& x, const torch::Tensor& scales,
                        const torch::Tensor& quanta) const = 0;
  // One bit per value, and one fp32 scale per kernels::kSignChunk values.
  virtual void pack_signs(const torch::Tensor& x, const torch::Tensor& scales,
                          const torch::Tensor& bits) const = 0;
  // As many of the largest magnitudes as `values` has room for, and their int32 positions in ascending order.
  virtual void find_largest(const torch::Tensor& x, const torch::Tensor& values,
                            const torch::Tensor& places) const = 0;

  virtual void add_quanta(Sums sums, const torch::Tensor& scales, const torch::Tensor& quanta) const = 0;
  virtual void add_signs(Sums sums, const torch::Tensor& scales, const torch::Tensor& bits) const = 0;
  virtual void add_places(Sums sums, const torch::Tensor& values, const torch::Tensor& places) const = 0;

  // Calls write(fresh) once and replaces `target` by `fresh`, unless one of `numbers` is not finite. `fresh`
  // may be undefined if that is known in advance.
  virtual void replace_if_finite(const torch::Tensor& target, const torch::Tensor& numbers,
                                 const std::function<void(const torch::Tensor& fresh)>& write) const = 0;
};

// Host memory only.
const Packing& packing_by_kernels();
// Any device. Never synchronises with it.
const Packing& packing_by_operators();

inline const Packing& packing_on(torch::Device device) {
  return device.is_cpu() ? packing_by_kernels() : packing_by_operators();
}
using PackingOn = const Packing& (*)(torch::Device device);

}  // namespace yoke::parallel
