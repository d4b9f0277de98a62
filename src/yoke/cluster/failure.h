// Why this job ends, told once and seen by everybody who waits.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace yoke::cluster {

// One root cause, as the whole job agrees on it.
struct FailureReport {
  int rank = -1;  // the culprit; -1: not a rank (launcher, network)
  std::string host;
  int64_t pid = 0;
  int64_t step = -1;  // of training, where known
  // "killed", "exited", "stalled", "mismatch", "deadline", "exception", "lost", "left", "stopped"
  std::string kind;
  std::string what;   // one line: "rank 2 on node1 (pid 4711) was killed by signal 9"
  std::string next;   // one line: what to do
  int exit_code = 0;  // of the culprit, 128 + n for signals; 0: not known
  std::string role;   // of the culprit, where it has one: "parameter server 1", "stage 2"
};

// How messages name a rank: "rank 4", or "parameter server 1 (rank 4)" where it has a role.
std::string rank_name(int rank, const std::string& role);

// Thread-safe. Waits in backends look at it a few times a second at least, or poll event_fd().
class Failure {
 public:
  Failure();
  ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  bool set() const { return set_.load(std::memory_order_acquire); }
  // The first report wins; later ones are dropped. Returns whether this was the first.
  bool raise(FailureReport report);
  FailureReport report() const;
  // Readable as soon as a report is there.
  int event_fd() const { return event_fd_; }
  // Throws CommError("<doing>: <what>. <next>") when set.
  void check(const char* doing) const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};
  FailureReport report_;
  int event_fd_;
};

}  // namespace yoke::cluster
