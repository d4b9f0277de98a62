// Sleeping and waking in a phase.
//
// A rank that waits spins first, then increments `sleepers` and sleeps on the futex `wakes`. The rank whose
// announcement completes the phase wakes all. The value of `wakes` is read before the check for completion,
// so that a wake-up in between makes the futex return immediately; the 20 ms slice bounds the cost of
// anything else.
#include "yoke/comm/shared/phases.h"

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::comm::shared {
namespace {

constexpr double kSlice = 0.02;  // seconds between two checks of the job's failure

}  // namespace

void sleep_slice(Word& word, uint32_t seen, const Deadline& deadline) {
  sleep_on(word, seen, std::min(kSlice, deadline.left()));
}

Phases::Phases(Control control, int rank, std::shared_ptr<cluster::Failure> failure, bool crowded)
    : control_(control), rank_(rank), failure_(std::move(failure)), spin_(crowded) {}

void Phases::announce() {
  Post& post = own_post();
  ++phase_;
  arrived_ = 0;
  // Sequentially consistent, like the sleeper's counter: either this rank sees the sleeper, or the sleeper
  // sees this store before it sleeps. With weaker ordering both could miss each other and a wake-up would be
  // lost.
  post.phase.store(phase_, std::memory_order_seq_cst);
  Head& head = control_.head();
  if (head.sleepers.load(std::memory_order_seq_cst) == 0 || !everybody_is_here()) return;
  head.wakes.fetch_add(1, std::memory_order_seq_cst);
  wake_all(head.wakes);
}

bool Phases::everybody_is_here() {
  for (; arrived_ < control_.size(); ++arrived_) {
    if (control_.rank(arrived_).posts[phase_ & 1].phase.load(std::memory_order_seq_cst) != phase_)
      return false;
  }
  return true;
}

void Phases::wait(const Deadline& deadline) {
  if (everybody_is_here()) return;
  double begin = now_seconds();
  if (!spin(spin_.window(), [this] { return everybody_is_here(); })) sleep(deadline);
  spin_.learn(now_seconds() - begin);
}

void Phases::sleep(const Deadline& deadline) {
  Head& head = control_.head();
  struct Asleep {
    Word& sleepers;
    explicit Asleep(Word& count) : sleepers(count) { sleepers.fetch_add(1, std::memory_order_seq_cst); }
    ~Asleep() { sleepers.fetch_sub(1, std::memory_order_relaxed); }
  } asleep(head.sleepers);
  for (;;) {
    uint32_t seen = head.wakes.load(std::memory_order_seq_cst);
    if (everybody_is_here()) return;
    check();
    if (deadline.passed())
      throw CommError("waited {:.3g} s for {} of {} ranks", deadline.elapsed(), missing(), control_.size());
    sleep_slice(head.wakes, seen, deadline);
  }
}

void Phases::check() const {
  failure_->check("waiting for the other ranks");
  // In one order with `active`, which this rank has just set (in_place.cpp): acquire alone may be read
  // earlier.
  uint32_t abandoned = control_.head().abandoned.load(std::memory_order_seq_cst);
  if (abandoned != 0)
    throw CommError("rank {} has aborted an operation of this group; the group is unusable", abandoned - 1);
}

std::string Phases::missing() const {
  std::string ranks;
  for (int r = 0; r < control_.size(); ++r) {
    if (control_.rank(r).posts[phase_ & 1].phase.load(std::memory_order_acquire) == phase_) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "rank " : ", ", r);
  }
  return ranks;
}

}  // namespace yoke::comm::shared
