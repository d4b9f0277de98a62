// The launcher's stdout and stderr, written without blocking: a stalled terminal or a full pipe must not
// delay the handling of signals and ranks. Not thread-safe.
#pragma once

#include <poll.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/deadline.h"

namespace yoke::cluster {

class Console {
 public:
  static constexpr size_t kMaxWaiting = size_t{4} << 20;

  // Queues `text`. fd: 1 or 2.
  void write(int fd, std::string_view text);
  // Too much is queued: stop reading from ranks until it is written.
  bool full() const;
  bool empty() const;
  // Whether the reader of our stdout is gone (`… | head -1`).
  bool stdout_closed() const { return closed_[1]; }
  // False if another source has printed this error ("error: …") before: one common to all ranks is shown
  // once. `from`: identifies the source.
  bool is_news(const std::string& line, int from);

  void add_polls(std::vector<pollfd>& polls) const;
  // Writes as much as the descriptors accept now.
  void pump();
  // Writes everything, or until the deadline.
  void flush(Deadline deadline);

 private:
  void pump_one(int fd);

  std::array<std::string, 3> waiting_;
  std::array<size_t, 3> sent_{};
  std::array<bool, 3> closed_{};
  std::map<std::string, int> errors_;  // and who printed it first
};

}  // namespace yoke::cluster
