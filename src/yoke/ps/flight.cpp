// Requests are sent from the messenger's thread as replies arrive, so the caller's thread sleeps until
// everything is done. The destructor may run only when nothing is in flight: callbacks refer to this object
// and to the caller's memory.
#include "yoke/ps/flight.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {
namespace {

class Flight {
 public:
  Flight(comm::Messenger& messenger, FlightPlan plan) : messenger_(messenger), plan_(std::move(plan)) {}

  void run() {
    size_t first = std::min(plan_.window, plan_.requests);
    for (size_t i = 0; i < first; ++i) send_next();
    std::unique_lock lock(mutex_);
    for (;;) {
      ended_.wait(lock, [&] {
        return !late_.empty() || (under_way_ == 0 && (next_ == plan_.requests || error_ != nullptr));
      });
      if (late_.empty()) break;
      bool failed = error_ != nullptr;
      std::vector<size_t> late = std::exchange(late_, {});
      lock.unlock();
      send_again(late, failed);
      lock.lock();
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void send_next() {
    size_t index = 0;
    {
      std::lock_guard lock(mutex_);
      if (next_ == plan_.requests || error_) return;
      index = next_++;
      ++under_way_;
    }
    send(index);
  }

  void send(size_t index) {
    FlightPlan::Request request;
    try {
      request = plan_.make(index);
    } catch (const CommError& problem) {
      return came(problem.what());  // nobody is left to ask
    }
    Deadline deadline = Deadline::after(plan_.timeout);
    messenger_.ask_then(request.peer, request.message, request.into, deadline,
                        [this, index, deadline, peer = request.peer, wanted = request.into.size()](
                            const comm::Message& reply, const std::string& error) {
                          if (!error.empty() && plan_.servers != nullptr && plan_.servers->moved(peer))
                            return plan_.to_each_server ? came("") : send(index);
                          if (!error.empty() && plan_.late && deadline.passed()) return is_late(index);
                          std::string problem = error.empty() ? problem_of(index, wanted, reply) : error;
                          if (!problem.empty())
                            problem = fmt::format(
                                "{}: {}", server_name(peer - plan_.first_server, plan_.ranks), problem);
                          came(problem);
                        });
  }

  void is_late(size_t index) {
    std::lock_guard lock(mutex_);
    late_.push_back(index);
    ended_.notify_all();
  }

  // Called by the waiting thread. Late requests count as in flight until they are answered or abandoned here.
  void send_again(const std::vector<size_t>& late, bool failed) {
    std::exception_ptr problem;
    try {
      if (!failed) plan_.late();
    } catch (const std::exception&) {
      problem = std::current_exception();
    }
    if (!failed && !problem) {
      for (size_t index : late) send(index);
      return;
    }
    std::lock_guard lock(mutex_);
    if (!error_) error_ = problem;
    under_way_ -= late.size();
  }

  // Runs on the messenger's thread: exceptions are passed to the waiting thread.
  std::string problem_of(size_t index, size_t wanted, const comm::Message& reply) {
    if (reply.payload.size() != wanted)
      return fmt::format("it answered with {} bytes, but {} were requested", reply.payload.size(), wanted);
    try {
      if (plan_.got) plan_.got(index, reply);
    } catch (const std::exception& problem) {
      return fmt::format("its answer: {}", problem.what());
    }
    return "";
  }

  void came(const std::string& error) {
    if (error.empty()) send_next();
    std::lock_guard lock(mutex_);
    if (!error.empty() && !error_) error_ = std::make_exception_ptr(CommError("{}", error));
    // Under the lock: the waiting thread destroys this object once it sees that nothing is in flight.
    if (--under_way_ == 0) ended_.notify_all();
  }

  comm::Messenger& messenger_;
  FlightPlan plan_;
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t next_ = 0;
  size_t under_way_ = 0;
  std::vector<size_t> late_;
  std::exception_ptr error_;
};

}  // namespace

std::string server_name(int server, const ReplicaRanks& ranks) {
  return fmt::format("parameter server {} (rank {})", server, ranks.ranks() + server);
}

void fly(comm::Messenger& messenger, FlightPlan plan) {
  if (plan.requests == 0) return;
  Flight(messenger, std::move(plan)).run();
}

std::string lost_with_copies(int home, const Succession& succession, const ReplicaRanks& ranks) {
  std::vector<std::string> names;
  for (int server : succession.lost_before_owner(home)) names.push_back(server_name(server, ranks));
  return fmt::format("{} {} lost: nobody holds the parameters of server {} any more", join(names),
                     names.size() > 1 ? "are" : "is", home);
}

comm::Message ask_server(comm::Messenger& messenger, ServerView& servers, int home,
                         const comm::Message& message, std::span<std::byte> into, double timeout) {
  for (;;) {
    const int peer = servers.peer_of(home);
    try {
      return messenger.ask(peer, message, into, Deadline::after(timeout)).get();
    } catch (const CommError&) {
      if (!servers.moved(peer)) throw;
    }
  }
}

void say_goodbye(comm::Messenger& messenger, int first_server, int servers, const ReplicaRanks& ranks,
                 ServerView* view) {
  constexpr double kGoodbyeTimeout = 5;
  FlightPlan plan;
  plan.first_server = first_server;
  plan.ranks = ranks;
  plan.requests = static_cast<size_t>(servers);
  plan.timeout = kGoodbyeTimeout;
  plan.servers = view;
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    FlightPlan::Request request;
    request.peer = first_server + static_cast<int>(server);
    request.message.kind = kGoodbye;
    return request;
  };
  fly(messenger, std::move(plan));
}

}  // namespace yoke::ps
