// Destinations of a rank's output: console, file, or both.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "yoke/cluster/launcher/console.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/cluster/launcher/lines.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

// One pipe from a rank. The write end is for the child and is closed once it runs.
class RankStream {
 public:
  // `console_fd`: 1, 2, or 0 for none. `file`: empty for none; created with its folders. `errors_of`: the
  // rank; hides errors that another one has already printed. Throws ConfigError.
  RankStream(std::string prefix, int console_fd, const std::filesystem::path& file,
             std::optional<int> errors_of = {});

  int child_end() const { return write_end_.get(); }
  void close_child_end() { write_end_.reset(); }
  int fd() const { return read_end_.get(); }  // -1 at end of file
  bool open() const { return static_cast<bool>(read_end_); }

  // Reads what is available (at most 64 KB) and passes it on.
  void pump(Console& console);
  // Stops reading and shows an unfinished line.
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
  std::optional<int> errors_of_;
  Lines lines_;
};

// "[rank 2] ", with several machines "[rank 2|node1] "; coloured for a terminal.
std::string rank_prefix(const LaunchOptions& options, int rank, bool colour);

// Streams for this local rank: its own entry, or the one for all.
int streams_for(const std::map<int, int>& wanted, int local_rank);

struct RankOutput {
  RankOutput(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder);
  int stdout_for_child() const;  // the pipe, or our own stdout

  std::unique_ptr<RankStream> out;  // nullptr: the child uses our stdout
  RankStream err;
};

}  // namespace yoke::cluster
