// Interception of LibTorch's operators on this thread: see docs/decisions/0016.
#pragma once

namespace yoke::parallel {

// While one lives on a thread, operators that the thread calls (and backward passes it starts) compute with
// sliced weights as their plan says. Must be destroyed on the same thread.
class OperatorInterception {
 public:
  OperatorInterception();
  ~OperatorInterception();
  OperatorInterception(const OperatorInterception&) = delete;
  OperatorInterception& operator=(const OperatorInterception&) = delete;
};

}  // namespace yoke::parallel
