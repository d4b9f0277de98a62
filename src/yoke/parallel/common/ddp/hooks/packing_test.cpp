// LibTorch's operators against the kernels, both in host memory.
#include "yoke/parallel/common/ddp/hooks/packing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/comm/run_ranks.h"
#include "yoke/kernels/compress.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/hooks/message_format.h"
#include "yoke/parallel/common/ddp/hooks/test_bucket.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
const torch::ScalarType kTypes[] = {torch::kFloat32, torch::kFloat64};
const int64_t kSizes[] = {1, 7, 8, 511, 512, 513, 1023, 1024, 1025, 2001, 100003};

Tensor normal_tensor(int64_t count, torch::ScalarType type, uint64_t seed = 1) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn({count}, generator, torch::kFloat64).to(type);
}

// Numbers of many sizes, and all that is special: zeros of both signs, halves of quanta, tiny and huge ones,
// and some that are not finite. Each has a chunk of its own, of quanta and of signs.
std::vector<Tensor> special_numbers(torch::ScalarType type) {
  std::vector<Tensor> all;
  for (int64_t size : kSizes) all.push_back(normal_tensor(size, type));
  Tensor x = normal_tensor(20 * 1024 + 5, type);
  auto chunk = [&](int64_t i) { return x.narrow(0, i * 1024, 1024); };
  chunk(0).zero_();
  chunk(1).fill_(-0.0);
  chunk(2).copy_(torch::arange(1024).remainder(255).sub(127).add(0.5));
  chunk(2)[3] = 127;
  chunk(3).mul_(1e-35);
  chunk(4).mul_(1e-30);
  chunk(5).mul_(1e30);
  const double bad[] = {kInfinite, -kInfinite, std::nan(""), -std::nan(""), 1e39, -1e300};
  for (int64_t i = 0; i < 6; ++i)  // the last two are too large for fp32 scales
    chunk(6 + 2 * i)[i * 97].copy_(torch::full({}, bad[i], torch::kFloat64));
  x[x.numel() - 1] = std::nan("");
  all.push_back(x);
  return all;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.contiguous().view(torch::kUInt8).equal(b.contiguous().view(torch::kUInt8));
}

// Equal, or NaN in both, to some units in the last place of fp32 or fp64.
void expect_close(const Tensor& a, const Tensor& b, double units) {
  double epsilon = a.scalar_type() == torch::kFloat64 ? 0x1p-52 : 0x1p-23;
  EXPECT_TRUE(torch::allclose(a, b, units * epsilon, units * epsilon, /*equal_nan=*/true))
      << (a - b).abs().max().item<double>();
}

// What both ways write into a message of its own, before which there are seven in every byte.
struct TwoMessages {
  Tensor first, second;

  TwoMessages(const Tensor& x, const MessageFormat& by_kernels, const MessageFormat& by_operators)
      : first(torch::full({by_kernels.bytes()}, 7, torch::kUInt8)), second(first.clone()) {
    by_kernels.pack(x, first);
    by_operators.pack(x, second);
  }
};

void expect_same_quanta(const Tensor& x) {
  MessageFormat kernels = int8_format(packing_by_kernels(), x.numel() + 600);
  MessageFormat operators = int8_format(packing_by_operators(), x.numel() + 600);
  TwoMessages messages(x, kernels, operators);
  int64_t scales = kernels::chunks_of(x.numel() + 600, kernels::kQuantumChunk) * 4;
  // NaN is NaN, whatever its bits.
  Tensor first = messages.first.narrow(0, 0, scales).view(torch::kFloat32);
  Tensor second = messages.second.narrow(0, 0, scales).view(torch::kFloat32);
  EXPECT_TRUE(torch::allclose(first, second, 0, 0, /*equal_nan=*/true)) << x.numel();
  EXPECT_TRUE(messages.first.slice(0, scales).equal(messages.second.slice(0, scales))) << x.numel();
}

TEST(Packing, QuantaOfOperatorsAreThoseOfTheKernels) {
  for (auto type : kTypes)
    for (const Tensor& x : special_numbers(type)) expect_same_quanta(x);
}

TEST(Packing, NumbersHalfwayBetweenTwoQuantaGoTheSameWay) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "without fused multiply-add the kernels round twice";
#endif
  for (auto type : kTypes) {
    // Every chunk has a largest number of its own, and others at its halves, as near as their type allows.
    Tensor largest = normal_tensor(200, type).abs_().add_(0.1).unsqueeze(1);
    Tensor halves = torch::arange(512).remainder(253).sub(126).add(0.5).to(type) / 127;
    Tensor x = largest * halves;
    x.narrow(1, 0, 1).copy_(largest);
    expect_same_quanta(x.flatten());
  }
}

TEST(Packing, SignsOfOperatorsAreThoseOfTheKernels) {
  for (auto type : kTypes)
    for (const Tensor& x : special_numbers(type)) {
      MessageFormat kernels = sign_format(packing_by_kernels(), x.numel() + 2000);
      MessageFormat operators = sign_format(packing_by_operators(), x.numel() + 2000);
      TwoMessages messages(x, kernels, operators);
      int64_t scales = kernels::chunks_of(x.numel() + 2000, kernels::kSignChunk) * 4;
      expect_close(messages.first.narrow(0, 0, scales).view(torch::kFloat32),
                   messages.second.narrow(0, 0, scales).view(torch::kFloat32), 16);
      EXPECT_TRUE(messages.first.slice(0, scales).equal(messages.second.slice(0, scales))) << x.numel();
    }
}

TEST(Packing, OperatorsFindTheLargestOfAll) {
  for (auto type : kTypes)
    for (int64_t size : kSizes)
      for (double fraction : {1e-9, 0.1, 0.5, 1.0}) {
        Tensor x = normal_tensor(size, type);
        TwoMessages messages(x, topk_format(packing_by_kernels(), size, type, fraction),
                             topk_format(packing_by_operators(), size, type, fraction));
        EXPECT_TRUE(messages.first.equal(messages.second)) << fraction << " of " << size;
      }
}

TEST(Packing, OperatorsKeepTheSameNumberOfEqualOnesAndWhatIsNotFinite) {
  for (auto type : kTypes) {
    Tensor x = normal_tensor(5000, type).mul_(2).round_();  // a dozen different numbers
    x[17] = -kInfinite;
    x[4000] = std::nan("");
    for (int64_t kept : {1, 2, 3, 10, 500, 4999}) {
      Tensor values = torch::empty({2, kept}, type), places = torch::empty({2, kept}, torch::kInt32);
      packing_by_kernels().find_largest(x, values[0], places[0]);
      packing_by_operators().find_largest(x, values[1], places[1]);
      Tensor sorted = std::get<0>(values.abs().sort(1));
      EXPECT_TRUE(torch::allclose(sorted[0], sorted[1], 0, 0, /*equal_nan=*/true)) << kept;
      for (int row : {0, 1}) {
        EXPECT_TRUE(same_bytes(x.index_select(0, places[row]), values[row])) << kept;
        EXPECT_TRUE((places[row].diff() > 0).all().item<bool>()) << kept;
      }
    }
  }
}

// Adds the same messages of three ranks in both ways, to nothing, to other numbers and in place.
void expect_same_sums(const MessageFormat& kernels, const MessageFormat& operators, int64_t size,
                      torch::ScalarType type, double units) {
  Tensor messages = torch::zeros({3, kernels.bytes()}, torch::kUInt8);
  for (int64_t rank = 0; rank < 3; ++rank)
    kernels.pack(normal_tensor(size, type, static_cast<uint64_t>(rank)), messages[rank]);
  for (double divisor : {1.0, 3.0, -1.0}) {
    Tensor start = normal_tensor(size, type, 9);
    Tensor out[2], rest[2];
    for (int i : {0, 1}) {
      const MessageFormat& format = i == 0 ? kernels : operators;
      out[i] = start.clone();
      rest[i] = torch::empty_like(start);
      format.add({{rest[i], out[i], 1, 1, -1}, {out[i], {}, 0, 3, divisor}}, messages);
    }
    expect_close(out[0], out[1], units);
    expect_close(rest[0], rest[1], units);
    kernels.add({{{}, {}, 0, 3, 1}, {out[0], start, 1, 2, divisor}}, messages);
    operators.add({{{}, {}, 0, 3, 1}, {out[1], start, 1, 2, divisor}}, messages);
    expect_close(out[0], out[1], units);
    kernels.add({{out[0], out[0], 2, 1, divisor}}, messages);
    operators.add({{out[1], out[1], 2, 1, divisor}}, messages);
    expect_close(out[0], out[1], units);
  }
}

TEST(Packing, OperatorsAddWhatTheKernelsAdd) {
  for (auto type : kTypes)
    for (int64_t size : kSizes) {
      // Quanta differ by where the product is rounded; signs and places leave nothing to round differently.
      expect_same_sums(int8_format(packing_by_kernels(), size + 600),
                       int8_format(packing_by_operators(), size + 600), size, type, 16);
      expect_same_sums(sign_format(packing_by_kernels(), size + 2000),
                       sign_format(packing_by_operators(), size + 2000), size, type, 0);
      expect_same_sums(topk_format(packing_by_kernels(), size, type, 0.3),
                       topk_format(packing_by_operators(), size, type, 0.3), size, type, 0);
    }
}

TEST(Packing, WhatIsNotFiniteSpoilsTheSameNumbers) {
  for (auto type : kTypes) {
    Tensor x = special_numbers(type).back();
    MessageFormat formats[] = {
        int8_format(packing_by_kernels(), x.numel()), sign_format(packing_by_kernels(), x.numel()),
        int8_format(packing_by_operators(), x.numel()), sign_format(packing_by_operators(), x.numel())};
    for (int i : {0, 1}) {
      TwoMessages messages(x, formats[i], formats[i + 2]);
      Tensor first = torch::empty_like(x), second = torch::empty_like(x);
      formats[i].add({{first, {}, 0, 1, 1}}, messages.first.unsqueeze(0));
      formats[i + 2].add({{second, {}, 0, 1, 1}}, messages.second.unsqueeze(0));
      expect_close(first, second, 16);
      EXPECT_GE(first.isnan().sum().item<int64_t>(), 4 * 512);
    }
  }
}

TEST(Packing, ReplacesOnlyByWhatIsFinite) {
  for (const Packing* packing : {&packing_by_kernels(), &packing_by_operators()})
    for (auto type : kTypes)
      for (double last : {2.0, kInfinite, std::nan("")}) {
        Tensor numbers = torch::ones({3, 9}, type).narrow(1, 2, 5);
        numbers[2][4] = last;
        Tensor target = torch::zeros({4}, type);
        packing->replace_if_finite(target, numbers, [](const Tensor& fresh) {
          if (fresh.defined()) fresh.fill_(5);
        });
        EXPECT_TRUE(target.eq(std::isfinite(last) ? 5 : 0).all().item<bool>()) << last;
      }
}

using MakeHook = std::shared_ptr<CommHook> (*)(PackingOn choose);
const MakeHook kPackingHooks[] = {
    [](PackingOn choose) { return make_int8_hook(choose); },
    [](PackingOn choose) { return make_sign_hook(choose); },
    [](PackingOn choose) { return make_topk_hook(0.1, choose); },
};

TEST(Packing, HooksGiveTheSameWithOperators) {
  PackingOn operators = [](torch::Device) -> const Packing& { return packing_by_operators(); };
  for (MakeHook make : kPackingHooks)
    for (auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16})
      comm::run_ranks(3, [&](comm::Communicator& comm) {
        auto hook = make(operators), other = make(packing_on);
        GradientBucket bucket = bucket_of(comm, {{30, 40}, {7}, {2000}}, type);
        GradientBucket twin = bucket_of(comm, {{30, 40}, {7}, {2000}}, type);
        for (int step = 0; step < 6; ++step) {
          draw(bucket, step);
          if (step == 3 && comm.rank() == 1) bucket.flat[1203] = kInfinite;
          twin.flat.copy_(bucket.flat);
          reduce(*hook, bucket);
          reduce(*other, twin);
          EXPECT_TRUE(same_bits(comm, bucket.flat.nan_to_num(7)));
          EXPECT_TRUE(bucket.flat.isfinite().equal(twin.flat.isfinite())) << step;
          // A number on the border between two quanta may go the other way after a rounding; of equally large
          // ones (in bf16 there are many) another one may be kept.
          Tensor truth = twin.flat.nan_to_num(7).to(torch::kFloat64);
          double tolerance = type == torch::kBFloat16 ? 0.1 : 1e-2;
          EXPECT_LT(relative_error(bucket.flat.nan_to_num(7), truth), tolerance) << step;
        }
        EXPECT_EQ(hook->bytes_compressed(), other->bytes_compressed());
      });
}

}  // namespace
}  // namespace yoke::parallel
