// What describing and comparing an operation costs: the name, the shape and the fingerprint that every rank
// makes of each, and the comparison with a peer's. bench/protection_cost.py builds and runs it; prints
// nanoseconds.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/comm/operation.h"

int main() {
  using yoke::comm::Descriptor;
  constexpr int kRounds = 9, kOperations = 200'000;
  const std::array<int64_t, 2> shape{128, 64};
  std::vector<double> nanoseconds;
  uint64_t different = 0;
  for (int round = 0; round < kRounds; ++round) {
    Descriptor theirs;
    double begin = yoke::now_seconds();
    for (int i = 0; i < kOperations; ++i) {
      Descriptor ours;
      ours.number = static_cast<uint64_t>(i);
      ours.set_name("bucket 3");
      ours.set_shape(shape);
      different += ours.fingerprint() != theirs.number;
      theirs.number = ours.fingerprint();
    }
    nanoseconds.push_back((yoke::now_seconds() - begin) / kOperations * 1e9);
  }
  std::nth_element(nanoseconds.begin(), nanoseconds.begin() + kRounds / 2, nanoseconds.end());
  fmt::print("{:.1f}\n", nanoseconds[kRounds / 2]);
  return different == 0 ? 1 : 0;
}
