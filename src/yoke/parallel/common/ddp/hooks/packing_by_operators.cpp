#include <limits>

#include "yoke/kernels/compress.h"
#include "yoke/parallel/common/ddp/hooks/packing.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;

// Some chunks of equal width: the full ones, or the shorter last one.
struct Chunks {
  int64_t first, count, width, size;

  Tensor numbers(const Tensor& x) const {
    return x.narrow(0, first * size, count * width).view({count, width});
  }
  Tensor scales(const Tensor& all) const { return all.narrow(0, first, count).unsqueeze(1); }
  Tensor bits(const Tensor& all) const {
    int64_t bytes = (width + 7) / 8;
    return all.narrow(0, first * size / 8, count * bytes).view({count, bytes});
  }
};

template <class Body>
void for_chunks(int64_t count, int64_t size, Body&& body) {
  int64_t whole = count / size;
  if (whole > 0) body(Chunks{0, whole, size, size});
  if (count % size > 0) body(Chunks{whole, 1, count % size, size});
}

// GPUs divide by a scalar by multiplying with its inverse, which differs in the last bit.
Tensor constant(double value, const Tensor& like) {
  return torch::full({}, value, like.options());
}

Tensor nan_unless_finite(const Tensor& scales) {
  return scales.masked_fill(scales.isfinite().logical_not_(), std::numeric_limits<double>::quiet_NaN());
}

// x * inverse to the nearest integer, half to even. The kernels round the product once: for fp32 it is exact
// in fp64, and fp64 they round to fp32 on the way.
Tensor rounded_product(const Tensor& x, const Tensor& inverse) {
  if (x.scalar_type() == torch::kFloat64) return (x * inverse).to(torch::kFloat32).round_();
  return (x * inverse.to(torch::kFloat64)).round_();
}

Tensor eight_shifts(const Tensor& bits) {
  return torch::arange(8, bits.options());
}

// Calls add(out, rank, divisor) for every rank of every sum.
template <class Add>
void for_ranks(Sums sums, Add&& add) {
  for (const PackedSum& sum : sums) {
    if (!sum.out.defined()) continue;
    if (!sum.start.defined())
      sum.out.zero_();
    else if (sum.start.data_ptr() != sum.out.data_ptr())
      sum.out.copy_(sum.start);
    for (int64_t i = 0; i < sum.ranks; ++i) add(sum.out, sum.first_rank + i, sum.divisor);
  }
}

class PackingByOperators final : public Packing {
 public:
  void quantise(const Tensor& x, const Tensor& scales, const Tensor& quanta) const override {
    for_chunks(x.numel(), kernels::kQuantumChunk, [&](const Chunks& chunks) {
      Tensor numbers = chunks.numbers(x);
      Tensor largest = nan_unless_finite(numbers.abs().amax(1, /*keepdim=*/true).to(torch::kFloat32));
      chunks.scales(scales).copy_((largest / constant(127, largest)).masked_fill_(largest < 1e-30, 0));
      Tensor inverse = constant(127, x) / largest.to(x.scalar_type());
      inverse.masked_fill_((largest >= 1e-30).logical_not_(), 0);
      // 0 times a non-finite value is NaN, which has no integer.
      chunks.numbers(quanta).copy_(rounded_product(numbers, inverse).nan_to_num_(0));
    });
  }

  void pack_signs(const Tensor& x, const Tensor& scales, const Tensor& bits) const override {
    for_chunks(x.numel(), kernels::kSignChunk, [&](const Chunks& chunks) {
      Tensor numbers = chunks.numbers(x);
      Tensor mean = numbers.abs().sum(1, /*keepdim=*/true, torch::kFloat64) / chunks.width;
      chunks.scales(scales).copy_(nan_unless_finite(mean.to(torch::kFloat32)));
      Tensor packed = chunks.bits(bits);
      Tensor negative = numbers.signbit().to(torch::kUInt8);
      negative = torch::constant_pad_nd(negative, {0, packed.size(1) * 8 - chunks.width});
      negative = negative.view({chunks.count, packed.size(1), 8}).bitwise_left_shift(eight_shifts(bits));
      packed.copy_(negative.sum(2, /*keepdim=*/false, torch::kUInt8));
    });
  }

  void find_largest(const Tensor& x, const Tensor& values, const Tensor& places) const override {
    Tensor found = std::get<1>(x.abs().topk(values.numel(), 0, /*largest=*/true, /*sorted=*/false));
    Tensor ascending = std::get<0>(found.sort());
    values.copy_(x.index_select(0, ascending));
    places.copy_(ascending);
  }

  void add_quanta(Sums sums, const Tensor& scales, const Tensor& quanta) const override {
    for_ranks(sums, [&](const Tensor& out, int64_t rank, double divisor) {
      for_chunks(out.numel(), kernels::kQuantumChunk, [&](const Chunks& chunks) {
        Tensor scale = chunks.scales(scales[rank]).to(out.scalar_type()) * (1 / divisor);
        chunks.numbers(out).addcmul_(chunks.numbers(quanta[rank]).to(out.scalar_type()), scale);
      });
    });
  }

  void add_signs(Sums sums, const Tensor& scales, const Tensor& bits) const override {
    for_ranks(sums, [&](const Tensor& out, int64_t rank, double divisor) {
      for_chunks(out.numel(), kernels::kSignChunk, [&](const Chunks& chunks) {
        Tensor scale = chunks.scales(scales[rank]).to(out.scalar_type()) * (1 / divisor);
        Tensor negative = chunks.bits(bits[rank]).unsqueeze(2).bitwise_right_shift(eight_shifts(bits));
        negative = negative.bitwise_and_(1).view({chunks.count, -1}).narrow(1, 0, chunks.width);
        chunks.numbers(out).add_(torch::where(negative.to(torch::kBool), -scale, scale));
      });
    });
  }

  // The positions of a rank are distinct: the order in which a GPU adds them does not matter.
  void add_places(Sums sums, const Tensor& values, const Tensor& places) const override {
    for_ranks(sums, [&](const Tensor& out, int64_t rank, double divisor) {
      out.index_add_(0, places[rank], values[rank] / constant(divisor, values));
    });
  }

  // Decided on the device, because the host would have to synchronise with it. Unwanted results are computed
  // in vain.
  void replace_if_finite(const Tensor& target, const Tensor& numbers,
                         const std::function<void(const Tensor& fresh)>& write) const override {
    Tensor fresh = torch::empty_like(target);
    write(fresh);
    Tensor result = target;
    torch::where_out(result, numbers.isfinite().all(), fresh, target);
  }
};

}  // namespace

const Packing& packing_by_operators() {
  static const PackingByOperators packing;
  return packing;
}

}  // namespace yoke::parallel
