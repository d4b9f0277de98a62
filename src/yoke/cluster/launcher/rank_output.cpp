#include "yoke/cluster/launcher/rank_output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/cluster/launcher/child_environment.h"

namespace yoke::cluster {
namespace {

net::Descriptor open_log(const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  net::Descriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) throw ConfigError("--log-dir: {}: cannot be written: {}.", file.string(), describe_errno(errno));
  return fd;
}

}  // namespace

RankStream::RankStream(std::string prefix, int console_fd, const std::filesystem::path& file,
                       std::optional<int> errors_of)
    : path_(file), console_fd_(console_fd), errors_of_(errors_of), lines_(std::move(prefix)) {
  if (!file.empty()) file_ = open_log(file);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::kInternal, "launcher: no pipe: " + describe_errno(errno));
  read_end_ = net::Descriptor(ends[0]);
  write_end_ = net::Descriptor(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // our end only: the child's end blocks, as programs expect
}

void RankStream::pump(Console& console) {
  std::array<char, 65536> bytes;
  ssize_t got = ::read(read_end_.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return finish(console);
  std::string_view text(bytes.data(), static_cast<size_t>(got));
  keep(text);
  std::string shown = lines_.feed(text, filter(console));
  if (console_fd_ != 0) console.write(console_fd_, shown);
}

void RankStream::finish(Console& console) {
  if (!read_end_) return;
  read_end_.reset();
  std::string shown = lines_.finish(filter(console));
  if (console_fd_ != 0) console.write(console_fd_, shown);
  file_.reset();
}

Lines::Filter RankStream::filter(Console& console) const {
  if (!errors_of_) return {};
  return [&console, from = *errors_of_](const std::string& line) { return console.is_news(line, from); };
}

void RankStream::keep(std::string_view bytes) {
  while (file_ && !bytes.empty()) {
    ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      log::warn("{}: {}; the rest of this rank's output is not saved.", path_.string(),
                describe_errno(errno));
      file_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

std::string rank_prefix(const LaunchOptions& options, int rank, bool colour) {
  std::string name = fmt::format("rank {}", rank);
  if (options.node_sizes.size() > 1) name += fmt::format("|node{}", options.node_rank);
  if (!colour) return fmt::format("[{}] ", name);
  constexpr std::array kColours = {36, 33, 35, 32, 34, 31};
  return fmt::format("\033[{}m[{}]\033[0m ", kColours[static_cast<size_t>(rank) % kColours.size()], name);
}

int streams_for(const std::map<int, int>& wanted, int local_rank) {
  auto own = wanted.find(local_rank);
  if (own == wanted.end()) own = wanted.find(-1);
  return own == wanted.end() ? kNoStream : own->second;
}

namespace {

struct Route {
  int console_fd = 0;
  std::filesystem::path file;
};

// Teed output goes to both places, redirected output only to the file.
Route route(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder, Streams stream,
            const char* file, int console_fd) {
  bool teed = (streams_for(options.tee, local_rank) & stream) != 0;
  bool redirected = (streams_for(options.redirects, local_rank) & stream) != 0;
  const std::vector<int>& shown = options.shown_ranks;
  bool visible = shown.empty() || std::find(shown.begin(), shown.end(), local_rank) != shown.end();
  Route result;
  if (options.stdout_is_hidden && stream == kStdout) visible = false;
  if (visible && (teed || !redirected)) result.console_fd = console_fd;
  if (teed || redirected) result.file = folder / file;
  return result;
}

std::unique_ptr<RankStream> make_out(const LaunchOptions& options, int local_rank,
                                     const std::filesystem::path& folder, int rank) {
  int console_fd = options.rank0_speaks || options.stdout_is_taken ? STDERR_FILENO : STDOUT_FILENO;
  Route where = route(options, local_rank, folder, kStdout, "stdout.log", console_fd);
  if (options.rank0_speaks && rank == 0 && where.file.empty()) return nullptr;
  std::string prefix = rank_prefix(options, rank, terminal::use_colour(console_fd));
  return std::make_unique<RankStream>(prefix, where.console_fd, where.file);
}

RankStream make_err(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder,
                    int rank) {
  Route where = route(options, local_rank, folder, kStderr, "stderr.log", STDERR_FILENO);
  bool plain = options.rank0_speaks && rank == 0;
  std::string prefix = plain ? "" : rank_prefix(options, rank, terminal::use_colour(STDERR_FILENO));
  return RankStream(prefix, where.console_fd, where.file, /*errors_of=*/rank);
}

}  // namespace

RankOutput::RankOutput(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder)
    : out(make_out(options, local_rank, folder, first_rank(options) + local_rank)),
      err(make_err(options, local_rank, folder, first_rank(options) + local_rank)) {}

int RankOutput::stdout_for_child() const {
  return out ? out->child_end() : STDOUT_FILENO;
}

}  // namespace yoke::cluster
