// For owners of memory that is used by operations in flight.
#pragma once

#include <exception>
#include <string>
#include <thread>

#include "yoke/base/deadline.h"
#include "yoke/comm/communicator.h"

namespace yoke::comm {

// The destructor of such an owner must wait for its operations. During stack unwinding, however, they may
// need further steps of this rank that will never be issued, and the wait would last until the timeout. A
// member of this type lets the destructor abandon() the communicator in that case.
class GiveUpOnException {
 public:
  // Grace period: if all ranks fail alike, what all of them have started still completes, and nobody must
  // abort.
  static constexpr double kGrace = 1;  // seconds

  explicit GiveUpOnException(Communicator& comm) : comm_(comm) {}

  // Call it in the destructor, before waiting. `done`: returns whether nothing is in flight. `what`: the
  // owner's work, for the errors of other ranks. Does nothing unless an exception is unwinding the stack.
  template <class Done>
  void before_wait(const Done& done, const char* what) const noexcept {
    if (std::uncaught_exceptions() <= exceptions_) return;
    Deadline grace = Deadline::after(kGrace);
    while (!done() && !grace.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!done()) comm_.abandon(std::string("an exception ended ") + what);
  }

 private:
  Communicator& comm_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace yoke::comm
