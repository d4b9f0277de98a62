#include "yoke/comm/shared/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <ctime>

namespace yoke::comm::shared {

void sleep_on(Word& word, uint32_t expected, double seconds) {
  double whole = std::floor(seconds);
  timespec limit{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void wake_all(Word& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace yoke::comm::shared
