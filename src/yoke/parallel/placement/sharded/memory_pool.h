// Memory of a communicator for what is gathered and reduced, used again from unit to unit.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

class MemoryPool {
 public:
  explicit MemoryPool(comm::Communicator& comm) : comm_(comm) {}

  comm::Memory take(int64_t bytes);
  void give(comm::Memory memory);  // requires: nobody reads or writes it any more

  int64_t held_bytes() const { return held_; }  // in use and kept for the next
  int64_t peak_bytes() const { return peak_; }  // of those
  void reset_peak() { peak_ = held_; }
  void clear();  // lets go of what is not in use

 private:
  comm::Communicator& comm_;
  std::vector<comm::Memory> free_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

}  // namespace yoke::parallel
