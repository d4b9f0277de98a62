// Clipping the gradient of an update by its norm over all servers.
//
// A server whose ranges have all gradients of the update tells its sum of squares to the scheduler, which
// adds them up in the order of the servers and tells all of them the factor.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "yoke/ps/messages.h"

namespace yoke::ps {

// The scheduler's side. One thread.
class Clipping {
 public:
  explicit Clipping(int servers) : servers_(static_cast<size_t>(servers)) {}

  // An update that is clipped was decided. Numbers grow.
  void await(int64_t number, double clip_norm);
  // What a server tells. The factor, once all have told theirs. Throws CommError where nothing, or nothing
  // more, is awaited of it.
  std::optional<ClipHead> add(int server, const SquareHead& head);

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
