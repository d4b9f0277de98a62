// Clips the gradient of an update by its global norm over all servers.
//
// A server that has all gradients of the update sends its sum of squares to the scheduler, which adds them in
// server order and sends the factor to all servers.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "yoke/ps/messages.h"

namespace yoke::ps {

// The scheduler's side. Not thread-safe.
class Clipping {
 public:
  explicit Clipping(int servers) : servers_(static_cast<size_t>(servers)) {}

  // Registers an update that is to be clipped. Numbers must increase.
  void await(int64_t number, double clip_norm);
  // Adds the sum of squares of the ranges of one server. Returns the factor once all are known. Throws
  // CommError if it is not expected. `again`: it may come twice.
  std::optional<ClipHead> add(int server, const SquareHead& head, bool again = false);

 private:
  struct Awaited {
    int64_t number = 0;
    double clip_norm = 0;
    std::vector<std::optional<double>> squares;  // by server
  };
  size_t servers_;
  std::deque<Awaited> awaited_;  // oldest first
};

}  // namespace yoke::ps
