// The destructor may run only when nothing is in flight: callbacks refer to this object and to the caller's
// memory.
#include "yoke/ps/flight.h"

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {

Flight::Flight(comm::Messenger& messenger, FlightPlan plan)
    : messenger_(messenger), plan_(std::move(plan)), states_(plan_.requests, State::kIdle) {}

Flight::~Flight() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  waiting_.clear();
  changed_.wait(lock, [&] { return under_way_ == late_.size(); });
}

void Flight::offer(size_t index) {
  {
    std::lock_guard lock(mutex_);
    if (states_[index] != State::kIdle || ending_) return;
    states_[index] = State::kOffered;
    waiting_.insert(index);
  }
  send_next(/*in_place_of=*/0);
}

// `in_place_of`: requests that are about to leave the window.
void Flight::send_next(size_t in_place_of) {
  size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty() || error_ || under_way_ - in_place_of >= plan_.window) return;
    index = *waiting_.begin();
    waiting_.erase(waiting_.begin());
    ++under_way_;
  }
  send(index);
}

void Flight::send(size_t index, Moves moves) {
  FlightPlan::Request request;
  try {
    request = plan_.make(index);
  } catch (const CommError& problem) {
    return came(index, problem.what());  // nobody is left to ask
  }
  const Deadline deadline = Deadline::after(plan_.timeout);
  messenger_.ask_then(request.peer, request.message, request.into, deadline,
                      [this, index, deadline, moves, peer = request.peer, wanted = request.into.size()](
                          const comm::Message& reply, const std::string& error) mutable {
                        std::string problem = error;
                        bool moved = false;
                        try {
                          moved = has_moved(reply, error);
                        } catch (const Error& invalid) {
                          problem = invalid.what();
                        }
                        if (moved && moves.follow()) return send(index, moves);
                        if (moved && plan_.late) return is_late(index);
                        if (moved) problem = moves.problem();
                        if (!error.empty() && plan_.servers != nullptr && plan_.servers->moved(peer))
                          return plan_.to_each_server ? came(index, "") : send(index);
                        if (!error.empty() && plan_.late && deadline.passed()) return is_late(index);
                        if (problem.empty()) problem = problem_of(index, wanted, reply);
                        if (!problem.empty())
                          problem = fmt::format("{}: {}", server_name(peer - plan_.first_server, plan_.ranks),
                                                problem);
                        came(index, problem);
                      });
}

// Whether the request is to be sent to another server.
bool Flight::has_moved(const comm::Message& reply, const std::string& error) {
  if (!error.empty() || reply.kind != kMoved || plan_.servers == nullptr) return false;
  plan_.servers->learn(reply);
  return true;
}

void Flight::is_late(size_t index) {
  std::lock_guard lock(mutex_);
  late_.push_back(index);
  changed_.notify_all();
}

// Called by the waiting thread. Late requests count as in flight until they are answered or abandoned here.
void Flight::send_again(const std::vector<size_t>& late) {
  try {
    plan_.late();
  } catch (const std::exception&) {
    std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    under_way_ -= late.size();
    return;
  }
  for (size_t index : late) send(index);
}

// Runs on the messenger's thread: exceptions are passed to the waiting thread.
std::string Flight::problem_of(size_t index, size_t wanted, const comm::Message& reply) {
  if (reply.payload.size() != wanted)
    return fmt::format("it answered with {} bytes, but {} were requested", reply.payload.size(), wanted);
  try {
    if (plan_.got) plan_.got(index, reply);
  } catch (const std::exception& problem) {
    return fmt::format("its answer: {}", problem.what());
  }
  return "";
}

void Flight::came(size_t index, const std::string& error) {
  if (error.empty()) send_next(/*in_place_of=*/1);
  std::lock_guard lock(mutex_);
  states_[index] = State::kAnswered;
  ++answered_;
  if (!error.empty() && !error_) error_ = std::make_exception_ptr(CommError("{}", error));
  --under_way_;
  const bool is_last = answered_ == plan_.requests || under_way_ == late_.size();
  // Under the lock: the waiting thread may destroy this object once it sees this.
  if (error_ || is_last || index == wanted_) changed_.notify_all();
}

void Flight::wait_until(const std::function<bool()>& reached) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !late_.empty() || error_ || reached(); });
    if (error_) std::rethrow_exception(error_);
    if (late_.empty()) return;
    std::vector<size_t> late = std::exchange(late_, {});
    lock.unlock();
    send_again(late);
    lock.lock();
  }
}

void Flight::wait(size_t index) {
  {
    std::lock_guard lock(mutex_);
    wanted_ = index;
  }
  wait_until([&] { return states_[index] == State::kAnswered; });
}

void Flight::wait_all() {
  wait_until([&] { return answered_ == plan_.requests; });
}

std::string server_name(int server, const ReplicaRanks& ranks) {
  return fmt::format("parameter server {} (rank {})", server, ranks.ranks() + server);
}

bool Flight::has_ended() {
  std::lock_guard lock(mutex_);
  return error_ || answered_ == plan_.requests;
}

void fly(comm::Messenger& messenger, FlightPlan plan) {
  const size_t requests = plan.requests;
  Flight flight(messenger, std::move(plan));
  for (size_t i = 0; i < requests; ++i) flight.offer(i);
  flight.wait_all();
}

std::string lost_with_copies(int home, const Succession& succession, const ReplicaRanks& ranks) {
  std::vector<std::string> names;
  for (int server : succession.lost_before_owner(home)) names.push_back(server_name(server, ranks));
  return fmt::format("{} {} lost: nobody holds the parameters of server {} any more", join(names),
                     names.size() > 1 ? "are" : "is", home);
}

std::string redundancy_left(const Succession& succession, bool makes_copies) {
  const int others = succession.living() - 1;
  if (others == 0) return "Redundancy is reduced: no other server is left";
  if (!makes_copies) return "Redundancy is reduced: training has ended, so no copies are made";
  if (others >= succession.replicas()) return "Redundancy is reduced until copies are made anew";
  return fmt::format("Redundancy is reduced: with {} other server{} there {} of {} copies", others,
                     others == 1 ? "" : "s", others == 1 ? "is 1" : fmt::format("are {}", others),
                     succession.replicas());
}

comm::Message ask_server(comm::Messenger& messenger, ServerView& servers, int home,
                         const comm::Message& message, std::span<std::byte> into, double timeout) {
  for (Moves moves(timeout);;) {
    const int peer = servers.peer_of(home);
    try {
      comm::Message reply = messenger.ask(peer, message, into, Deadline::after(timeout)).get();
      if (reply.kind != kMoved) return reply;
      servers.learn(reply);
    } catch (const CommError&) {
      if (servers.moved(peer)) continue;
      throw;
    }
    if (!moves.follow()) throw CommError("server {}: {}", home, moves.problem());
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
