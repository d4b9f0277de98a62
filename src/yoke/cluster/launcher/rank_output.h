// Where the output of a rank goes: console, file, or both.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "yoke/cluster/launcher/console.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/cluster/launcher/lines.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

// One pipe from a rank. The writing end is for the child and closed once it runs.
class RankStream {
 public:
  // `console_fd`: 1, 2, or 0 for nowhere. `file`: empty for none; made with its folders. Throws ConfigError.
  // `errors_once`: errors that other ranks have printed are not shown again.
  RankStream(std::string prefix, int console_fd, const std::filesystem::path& file, bool errors_once = false);

  int child_end() const { return write_end_.get(); }
  void close_child_end() { write_end_.reset(); }
  int fd() const { return read_end_.get(); }  // -1 at the end
  bool open() const { return static_cast<bool>(read_end_); }

  // Reads what is there (at most 64 KB) and passes it on.
  void pump(Console& console);
  // No more will be read: an unfinished line is shown, too.
  void finish(Console& console);
  const std::deque<std::string>& tail() const { return lines_.tail(); }

 private:
  void keep(std::string_view bytes);
  Lines::Filter filter(Console& console) const;

  net::Descriptor read_end_;
  net::Descriptor write_end_;
  net::Descriptor file_;
  std::filesystem::path path_;
  int console_fd_;
  bool errors_once_;
  Lines lines_;
};

// "[rank 2] ", "[rank 2|node1] " with several machines; in colour for a terminal.
std::string rank_prefix(const LaunchOptions& options, int rank, bool colour);

// Streams of `wanted` for this local rank (its own entry, or the one for all).
int streams_for(const std::map<int, int>& wanted, int local_rank);

struct RankOutput {
  RankOutput(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder);
  int stdout_for_child() const;  // the pipe, or our own stdout

  std::unique_ptr<RankStream> out;  // null: the child has our own stdout
  RankStream err;
};

}  // namespace yoke::cluster
