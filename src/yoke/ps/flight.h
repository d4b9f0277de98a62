// Keeps several requests in flight and waits for all of them.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/moves.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/server_view.h"

namespace yoke::ps {

struct FlightPlan {
  struct Request {
    int peer = 0;
    comm::Message message;
    std::span<std::byte> into;
  };
  int first_server = 0;  // peer number of the first server, so that errors name the server
  ReplicaRanks ranks;    // ranks of the job, before the servers'
  size_t requests = 0;   // number of requests
  size_t window = 64;    // maximum in flight
  double timeout = 300;  // seconds, of each request
  // Requests to a lost server are made again, for the server that took over. nullptr: they fail.
  ServerView* servers = nullptr;
  bool to_each_server = false;  // a request to a lost server counts as answered instead
  // Called by the waiting thread if a request timed out; the request is then sent again. It throws if waiting
  // is pointless. Empty: a timeout is an error.
  std::function<void()> late;
  // Creates request `index`. Any thread.
  std::function<Request(size_t index)> make;
  // Handles a reply, on the messenger's thread; may be empty.
  std::function<void(size_t index, const comm::Message& reply)> got;
};

// "parameter server 1 (rank 4)".
std::string server_name(int server, const ReplicaRanks& ranks);
// All servers that held the ranges of `home` are lost, in words.
std::string lost_with_copies(int home, const Succession& succession, const ReplicaRanks& ranks);
// What is left of the copies after a server took over, in words. `makes_copies`: those that are missing are
// made anew where there are servers for them. Requires replicas.
std::string redundancy_left(const Succession& succession, bool makes_copies);

// Requests that are sent once they are offered, while the caller does something else. Replies trigger the
// next requests on the messenger's thread. After an error no more are sent.
class Flight {
 public:
  Flight(comm::Messenger& messenger, FlightPlan plan);
  // Waits for the requests in flight, so that their memory is free; the others are not sent.
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  // Request `index` may be sent: now, or when others are answered; of those that wait the lowest index goes
  // first. Again: no effect. Any thread, as far as plan.make allows.
  void offer(size_t index);
  // Return once this request, or every one, is answered. Throw the first error. One thread at a time.
  void wait(size_t index);
  void wait_all();
  // Whether wait_all() would return or throw at once.
  bool has_ended();

 private:
  enum class State : uint8_t { kIdle, kOffered, kAnswered };

  void send_next(size_t in_place_of);
  void send(size_t index) { send(index, Moves(plan_.timeout)); }
  void send(size_t index, Moves moves);
  bool has_moved(const comm::Message& reply, const std::string& error);
  void is_late(size_t index);
  void send_again(const std::vector<size_t>& late);
  std::string problem_of(size_t index, size_t wanted, const comm::Message& reply);
  void came(size_t index, const std::string& error);
  void wait_until(const std::function<bool()>& reached);

  comm::Messenger& messenger_;
  FlightPlan plan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<size_t> waiting_;  // offered, not sent
  std::vector<State> states_;
  size_t answered_ = 0;
  size_t wanted_ = 0;  // last one that wait() was called for
  size_t under_way_ = 0;
  bool ending_ = false;  // by the destructor
  std::vector<size_t> late_;
  std::exception_ptr error_;
};

// Sends all requests and returns once every reply has arrived. Throws the first error once all requests in
// flight have ended.
void fly(comm::Messenger& messenger, FlightPlan plan);

// Asks the server that serves the ranges of `home`, and the one that takes over if it is lost. Throws
// CommError.
comm::Message ask_server(comm::Messenger& messenger, ServerView& servers, int home,
                         const comm::Message& message, std::span<std::byte> into, double timeout);

// Leaves all servers, without statistics. `view`: as in FlightPlan. Throws like fly().
void say_goodbye(comm::Messenger& messenger, int first_server, int servers, const ReplicaRanks& ranks,
                 ServerView* view = nullptr);

}  // namespace yoke::ps
