#include "yoke/ps/sandblaster/numbers.h"

#include <cstring>

#include "yoke/base/error.h"

namespace yoke::ps::sandblaster {
namespace {

// What comes before the inverse curvatures.
struct Fixed {
  int64_t iterations = 0;
  int64_t remembered = 0;
  int64_t oldest = 0;
  double scale = 1;
  double step_length = 0;
};

}  // namespace

size_t bytes_of_numbers(int64_t history) {
  return sizeof(Fixed) + static_cast<size_t>(history) * sizeof(double);
}

std::vector<std::byte> to_bytes(const kernels::LbfgsNumbers& numbers) {
  const Fixed fixed{numbers.iterations, numbers.remembered, numbers.oldest, numbers.scale,
                    numbers.step_length};
  const std::vector<double>& rows = numbers.inverse_curvature;
  std::vector<std::byte> bytes(bytes_of_numbers(static_cast<int64_t>(rows.size())));
  std::memcpy(bytes.data(), &fixed, sizeof(fixed));
  if (!rows.empty()) std::memcpy(bytes.data() + sizeof(fixed), rows.data(), rows.size() * sizeof(double));
  return bytes;
}

kernels::LbfgsNumbers numbers_in(std::span<const std::byte> bytes) {
  Fixed fixed;
  if (bytes.size() < sizeof(fixed) || (bytes.size() - sizeof(fixed)) % sizeof(double) != 0)
    throw CommError("{} bytes are not the numbers of L-BFGS", bytes.size());
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  kernels::LbfgsNumbers numbers;
  numbers.iterations = fixed.iterations;
  numbers.remembered = fixed.remembered;
  numbers.oldest = fixed.oldest;
  numbers.scale = fixed.scale;
  numbers.step_length = fixed.step_length;
  numbers.inverse_curvature.resize((bytes.size() - sizeof(fixed)) / sizeof(double));
  if (!numbers.inverse_curvature.empty())
    std::memcpy(numbers.inverse_curvature.data(), bytes.data() + sizeof(fixed), bytes.size() - sizeof(fixed));
  return numbers;
}

}  // namespace yoke::ps::sandblaster
