// The result of an operation that is under way.
#pragma once

#include <memory>
#include <utility>

namespace yoke::comm {

class Pending {
 public:
  // When the operation was carried out, as yoke::now_seconds(); 0: not known (yet).
  struct Timing {
    double started = 0;
    double ended = 0;
  };

  // How a communicator carries its operations out.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // until done or its deadline; throws what went wrong, each time
    virtual bool done() = 0;  // without waiting; true also after a failure
    virtual Timing timing() { return {}; }
  };

  Pending() = default;  // of nothing: done
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns when the operation is complete: its buffers may be read and changed. Throws CommError: a peer
  // failed or disagreed, or the operation's deadline passed.
  void wait() const {
    if (state_) state_->wait();
  }
  // Whether the operation is complete or has failed, without waiting. It is carried out whether or not
  // anybody waits or polls; polling begins it at once.
  bool done() const { return !state_ || state_->done(); }
  Timing timing() const { return state_ ? state_->timing() : Timing{}; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace yoke::comm
