// Which units are in memory: those in use, and those that will be soon.
//
// The order of use is learned: what a pass (forward and backward) used after what is what the next one is
// expected to. Plain data; ranks that use units in the same order make the same decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yoke::parallel {

class Residency {
 public:
  using Units = std::vector<size_t>;

  // `keep`: what is gathered stays until gone().
  Residency(int64_t prefetch, bool keep) : prefetch_(prefetch), keep_(keep) {}

  struct Change {
    Units release;
    Units gather;  // in this order; those in use first
  };
  // `units` are used next.
  Change use(const Units& units);
  // Units that were released for another reason.
  void gone(size_t unit);
  bool present(size_t unit) const;
  // Forward and backward are over. Nothing is expected beyond the end of a pass.
  void end_pass();

 private:
  void advance(const Units& units);

  int64_t prefetch_;
  bool keep_;
  std::vector<Units> trace_;      // of the last pass
  std::vector<Units> recording_;  // of this one
  size_t next_ = 0;               // in the trace; its size: unknown
  Units present_;
};

}  // namespace yoke::parallel
