// How the ranks of a group keep in step: announce, then wait for everybody.
#pragma once

#include <memory>
#include <string>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"
#include "yoke/comm/shared/control.h"
#include "yoke/comm/shared/spin.h"

namespace yoke::comm::shared {

// One thread at a time.
class Phases {
 public:
  Phases(Control control, int rank, std::shared_ptr<cluster::Failure> failure, bool crowded);

  // The coming phase's post and slot, to be filled before announce().
  uint32_t parity() const { return (phase_ + 1) & 1; }
  Post& own_post() const { return control_.rank(rank_).posts[parity()]; }
  std::byte* own_slot() const { return control_.slot(rank_, parity()); }
  Descriptor& own_descriptor() const { return control_.rank(rank_).descriptors[parity()]; }

  // Begins the phase: what was written before is seen by whoever has waited for it.
  void announce();
  // Until every rank has announced it. Throws CommError: the job has failed, a rank has given up on this
  // group, or the deadline has passed.
  void wait(const Deadline& deadline);

  // Of the phase that was announced last.
  uint32_t current() const { return phase_; }
  const Post& post(int r) const { return control_.rank(r).posts[phase_ & 1]; }
  const std::byte* slot(int r) const { return control_.slot(r, phase_ & 1); }
  const Descriptor& descriptor(int r) const { return control_.rank(r).descriptors[phase_ & 1]; }

  // Throws like wait() for a job or group that is already lost.
  void check() const;

 private:
  bool everybody_is_here();
  void sleep(const Deadline& deadline);
  std::string missing() const;

  Control control_;
  int rank_;
  std::shared_ptr<cluster::Failure> failure_;
  Spin spin_;
  uint32_t phase_ = 0;
  int arrived_ = 0;  // ranks below it have been seen in this phase
};

// Waits while `word` is `seen`, in slices in which the job's failure is noticed. Returns when it has changed
// or the slice of at most 20 ms is over.
void sleep_slice(Word& word, uint32_t seen, const Deadline& deadline);

}  // namespace yoke::comm::shared
