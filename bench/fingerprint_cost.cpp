// What describing and comparing an operation costs a rank: its name, shape and fingerprint, the description
// laid where the others can read it, and the comparison with what a peer laid there. bench/protection_cost.py
// builds and runs it; prints nanoseconds.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/comm/operation.h"

namespace {

struct Slot {
  uint64_t fingerprint = 0;
  yoke::comm::Descriptor descriptor;
};

// Keeps the compiler from doing once what has to be done for each operation.
template <class T>
void hide(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

}  // namespace

int main() {
  using yoke::comm::Descriptor;
  constexpr int kRounds = 31, kOperations = 100'000;
  std::array<int64_t, 2> shape{128, 64};
  std::string_view name = "bucket 3";
  std::vector<double> nanoseconds;
  std::array<Slot, 2> slots;
  uint64_t different = 0;
  for (int round = 0; round < kRounds; ++round) {
    double begin = yoke::now_seconds();
    for (int i = 0; i < kOperations; ++i) {
      hide(name);
      hide(shape);
      Descriptor ours;
      ours.number = static_cast<uint64_t>(i);
      ours.count = 128 * 64;
      ours.set_name(name);
      ours.set_shape(shape);
      slots[0].fingerprint = ours.fingerprint();
      std::memcpy(&slots[0].descriptor, &ours, sizeof(Descriptor));
      hide(slots);
      different += slots[0].fingerprint != slots[1].fingerprint;
    }
    nanoseconds.push_back((yoke::now_seconds() - begin) / kOperations * 1e9);
  }
  std::nth_element(nanoseconds.begin(), nanoseconds.begin() + kRounds / 2, nanoseconds.end());
  fmt::print("{:.1f}\n", nanoseconds[kRounds / 2]);
  return different == 0 ? 1 : 0;
}
