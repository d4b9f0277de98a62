// Keeps the ranks of a group in step: announce a phase, then wait until everybody has.
#pragma once

#include <memory>
#include <string>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"
#include "yoke/comm/shared/control.h"
#include "yoke/comm/shared/spin.h"

namespace yoke::comm::shared {

// See control.h for the protocol. One thread at a time.
class Phases {
 public:
  Phases(Control control, int rank, std::shared_ptr<cluster::Failure> failure, bool crowded);

  // Post and slot of the next phase; fill them before announce().
  uint32_t parity() const { return (phase_ + 1) & 1; }
  Post& own_post() const { return control_.rank(rank_).posts[parity()]; }
  std::byte* own_slot() const { return control_.slot(rank_, parity()); }
  Descriptor& own_descriptor() const { return control_.rank(rank_).descriptors[parity()]; }

  // Enters the next phase; publishes what was written before (release).
  void announce();
  // Blocks until every rank has announced the phase. Throws CommError: the job has failed, a rank has aborted
  // an operation of this group, or the deadline has passed.
  void wait(const Deadline& deadline);

  // Of the phase announced last. Valid until this rank announces the phase after the next.
  uint32_t current() const { return phase_; }
  const Post& post(int r) const { return control_.rank(r).posts[phase_ & 1]; }
  const std::byte* slot(int r) const { return control_.slot(r, phase_ & 1); }
  const Descriptor& descriptor(int r) const { return control_.rank(r).descriptors[phase_ & 1]; }

  // Throws like wait() if the job or the group has already failed.
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
  int arrived_ = 0;  // all ranks below this one have been seen in this phase
};

// Sleeps while `word` equals `seen`, for at most 20 ms, so that the caller can check for a failure of the job
// in between.
void sleep_slice(Word& word, uint32_t seen, const Deadline& deadline);

}  // namespace yoke::comm::shared
