#include "yoke/ps/flight.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

class Flight {
 public:
  Flight(comm::Messenger& messenger, FlightPlan plan) : messenger_(messenger), plan_(std::move(plan)) {}

  void run() {
    size_t first = std::min(plan_.window, plan_.requests);
    for (size_t i = 0; i < first; ++i) send_next();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return under_way_ == 0 && (next_ == plan_.requests || !error_.empty()); });
    if (!error_.empty()) throw CommError("{}", error_);
  }

 private:
  void send_next() {
    size_t index = 0;
    {
      std::lock_guard lock(mutex_);
      if (next_ == plan_.requests || !error_.empty()) return;
      index = next_++;
      ++under_way_;
    }
    FlightPlan::Request request = plan_.make(index);
    messenger_.ask_then(request.peer, request.message, request.into, Deadline::after(plan_.timeout),
                        [this, index, peer = request.peer, wanted = request.into.size()](
                            const comm::Message& reply, const std::string& error) {
                          came(error.empty() ? problem_of(index, peer, wanted, reply) : error);
                        });
  }

  // What came is looked at on the messenger's thread: an exception there is told to who waits.
  std::string problem_of(size_t index, int peer, size_t wanted, const comm::Message& reply) {
    if (reply.payload.size() != wanted)
      return fmt::format("rank {} answered with {} bytes, {} were asked for", peer, reply.payload.size(),
                         wanted);
    try {
      if (plan_.got) plan_.got(index, reply);
    } catch (const CommError& problem) {
      return fmt::format("the answer of rank {}: {}", peer, problem.what());
    }
    return "";
  }

  void came(const std::string& error) {
    if (error.empty()) send_next();
    std::lock_guard lock(mutex_);
    if (!error.empty() && error_.empty()) error_ = error;
    // Under the lock: the waiting thread destroys all this as soon as it sees the last one.
    if (--under_way_ == 0) ended_.notify_all();
  }

  comm::Messenger& messenger_;
  FlightPlan plan_;
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t next_ = 0;
  size_t under_way_ = 0;
  std::string error_;
};

}  // namespace

void fly(comm::Messenger& messenger, FlightPlan plan) {
  if (plan.requests == 0) return;
  Flight(messenger, std::move(plan)).run();
}

}  // namespace yoke::ps
