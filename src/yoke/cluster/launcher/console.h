// The launcher's own stdout and stderr, written without ever blocking: a stalled terminal or a full pipe must
// not keep it from its signals and its ranks.
#pragma once

#include <poll.h>

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/deadline.h"

namespace yoke::cluster {

class Console {
 public:
  static constexpr size_t kMaxWaiting = size_t{4} << 20;

  // fd: 1 or 2.
  void write(int fd, std::string_view text);
  // Too much waits: ranks should not be read until it is gone.
  bool full() const;
  bool empty() const;
  // Whether nobody reads our stdout any more (`… | head -1`).
  bool stdout_closed() const { return closed_[1]; }
  // False for an error that was asked about before: what is wrong for all ranks is shown once.
  bool is_news(const std::string& line);

  void add_polls(std::vector<pollfd>& polls) const;
  // Writes what the descriptors take now.
  void pump();
  // Until all is out or the deadline passes.
  void flush(Deadline deadline);

 private:
  void pump_one(int fd);

  std::array<std::string, 3> waiting_;
  std::array<size_t, 3> sent_{};
  std::array<bool, 3> closed_{};
  std::set<std::string> errors_;
};

}  // namespace yoke::cluster
