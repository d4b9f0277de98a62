// Divides the time of a server: a payload arrives, a request is handled, or the server waits.
#pragma once

#include <cstddef>
#include <vector>

namespace yoke::ps {

// Times are now_seconds(). Before start() and after stop() nothing is counted. One thread.
class ServerClock {
 public:
  explicit ServerClock(int peers) : arriving_(static_cast<size_t>(peers), false) {}

  void start(double now);  // again: no effect
  void stop(double now);   // for good

  // The payload of a message of `peer` begins to arrive; handling() or lost() ends it.
  void arrives(int peer, double now);
  void handling(int peer, double now);
  void handled(double now);
  void lost(int peer, double now);

  struct Times {
    double receive = 0;  // a payload was arriving and nothing was handled
    double apply = 0;    // a request was handled
    double wait = 0;
  };
  Times times(double now);

 private:
  void pass(double now);
  void has_arrived(int peer);

  std::vector<bool> arriving_;  // by peer
  int payloads_ = 0;            // that arrive
  bool handles_ = false;
  bool runs_ = false, stopped_ = false;
  double since_ = 0;
  Times times_;
};

}  // namespace yoke::ps
