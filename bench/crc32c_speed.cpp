// How fast payloads are summed, beside memcpy of the same bytes: every kernel this processor has, from the
// first and second cache and from memory, in turns. Prints medians in GB/s (10^9 bytes).
//
//   c++ -std=c++20 -O3 -Isrc -I.deps/include bench/crc32c_speed.cpp build/libyoke_core.a -lfmt -o
//   /tmp/crc32c_speed && /tmp/crc32c_speed
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/kernels/crc32c_kernels.h"

namespace {

constexpr int kRounds = 15;
volatile uint32_t used;

template <class Work>
double gigabytes_per_second(size_t bytes, Work work) {
  const size_t repeats = std::max<size_t>(1, (size_t{64} << 20) / bytes);
  double begin = yoke::now_seconds();
  for (size_t i = 0; i < repeats; ++i) work();
  return static_cast<double>(bytes * repeats) / (yoke::now_seconds() - begin) / 1e9;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

}  // namespace

int main() {
  using yoke::kernels::Crc32cKernel;
  std::vector<Crc32cKernel> kernels;
  for (const Crc32cKernel& kernel : yoke::kernels::crc32c_kernels()) {
    if (kernel.available()) kernels.push_back(kernel);
  }
  fmt::print("{:>10}{:>12}", "bytes", "memcpy");
  for (const Crc32cKernel& kernel : kernels) fmt::print("{:>14}", kernel.name);
  fmt::print("\n");
  for (size_t bytes : {size_t{64}, size_t{1} << 10, size_t{16} << 10, size_t{256} << 10, size_t{128} << 20}) {
    std::vector<uint8_t> from(bytes, 1), to(bytes, 2);
    std::vector<double> copies;
    std::vector<std::vector<double>> sums(kernels.size());
    for (int round = 0; round < kRounds; ++round) {
      copies.push_back(gigabytes_per_second(bytes, [&] {
        std::memcpy(to.data(), from.data(), bytes);
        used = to[round];
      }));
      for (size_t k = 0; k < kernels.size(); ++k)
        sums[k].push_back(
            gigabytes_per_second(bytes, [&] { used = kernels[k].sum(from.data(), bytes, used); }));
    }
    fmt::print("{:>10}{:>12.1f}", bytes, median(copies));
    for (std::vector<double>& one : sums) fmt::print("{:>14.1f}", median(one));
    fmt::print("\n");
  }
}
