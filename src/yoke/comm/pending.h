// Handle of an operation in flight. Copyable; copies refer to the same operation. Thread-safe.
#pragma once

#include <memory>
#include <utility>

namespace yoke::comm {

class Pending {
 public:
  // Start and end of execution, in yoke::now_seconds(); 0: unknown or not yet.
  struct Timing {
    double started = 0;
    double ended = 0;
  };

  // Implemented by communicators.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // until done or the deadline; rethrows the error on every call
    virtual bool done() = 0;  // non-blocking; true after a failure too
    virtual Timing timing() { return {}; }
  };

  Pending() = default;  // refers to no operation: done
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Blocks until the operation is complete and its buffers may be used again. Throws CommError: a peer
  // failed, the calls did not match, or the deadline passed.
  void wait() const {
    if (state_) state_->wait();
  }
  // Whether the operation has completed or failed. Non-blocking. Operations run whether or not anybody waits
  // or polls; polling starts a small one that would otherwise be deferred.
  bool done() const { return !state_ || state_->done(); }
  Timing timing() const { return state_ ? state_->timing() : Timing{}; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace yoke::comm
