// Several requests under way at a time, and one wait for all of them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "yoke/comm/messenger.h"

namespace yoke::ps {

struct FlightPlan {
  struct Request {
    int peer = 0;
    comm::Message message;
    std::span<std::byte> into;
  };
  int first_server = 0;  // rank of it: errors name the server they came from
  size_t requests = 0;
  size_t window = 64;    // at most so many under way
  double timeout = 300;  // seconds, of each
  // Called by the thread that waits when a request was not answered in time, which is then sent again. It
  // throws where waiting has no sense any more. Empty: such a request is an error.
  std::function<void()> late;
  std::function<Request(size_t index)> make;
  std::function<void(size_t index, const comm::Message& reply)>
      got;  // on the messenger's thread; may be empty
};

// "parameter server 1 (rank 4)".
std::string server_name(int rank, int first_server);

// Sends everything and returns when every reply is there. The next request leaves when a reply comes, without
// the caller's thread. After an error no more are sent; throws the first one once all that were in flight
// have ended, so that their memory is free.
void fly(comm::Messenger& messenger, FlightPlan plan);

}  // namespace yoke::ps
