// The cause of failure of a job, set once and visible to everybody who waits.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace yoke::cluster {

// The root cause, the same on all ranks.
struct FailureReport {
  int rank = -1;  // the culprit; -1: not a rank (launcher, network)
  std::string host;
  int64_t pid = 0;
  int64_t step = -1;  // training step, if known
  // "killed", "exited", "stalled", "mismatch", "deadline", "exception", "lost", "left", "stopped"
  std::string kind;
  std::string what;   // one line: "rank 2 on node1 (pid 4711) was killed by signal 9"
  std::string next;   // one line: what to do next
  int exit_code = 0;  // of the culprit, 128 + n for signals; 0: unknown
  std::string role;   // of the culprit, if it has one: "parameter server 1", "stage 2"
};

// Name of a rank in messages: "rank 4", or "parameter server 1 (rank 4)" with a role.
std::string rank_name(int rank, const std::string& role);

// Thread-safe. Waits in backends check it several times per second, or poll event_fd().
class Failure {
 public:
  Failure();
  ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  bool set() const { return set_.load(std::memory_order_acquire); }
  // The first report wins; later ones are ignored. Returns whether this was the first.
  bool raise(FailureReport report);
  FailureReport report() const;
  // Becomes and stays readable once a report is set.
  int event_fd() const { return event_fd_; }
  // Throws CommError("<doing>: <what>. <next>") if set.
  void check(const char* doing) const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};
  FailureReport report_;
  int event_fd_;
};

}  // namespace yoke::cluster
