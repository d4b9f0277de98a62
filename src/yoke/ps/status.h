// What a server of a running job says about itself, for `yoke ps top`: plain data, and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace yoke::ps {

// What a server is asked through cluster::JobContact.
inline constexpr const char* kAskStatus = "status";
inline constexpr const char* kAskJoin = "join ";  // with what a server that joins says (late_server.h)
inline constexpr const char* kAskWorkerLeave = "let go ";  // and a number, asked of the scheduler's server
inline constexpr const char* kNotScheduler = "does not run the scheduler";
inline constexpr const char* kAskLeave = "leave";  // the answer is why it cannot; empty: it leaves

// A worker, as the scheduler knows it.
struct WorkerStatus {
  int64_t id = 0;
  int64_t clock = 0;      // gradients that counted
  int64_t minibatch = 0;  // that it was given last
  int64_t staleness = 0;  // updates since the version that it works with
  double compute_seconds = 0;
  std::string state = "absent";  // absent computing waiting leaving lost left
  bool operator==(const WorkerStatus&) const = default;
};

struct ServerStatus {
  int64_t id = 0;
  int64_t ranges = 0;  // served
  int64_t copies = 0;  // ranges of other servers that are held as copies
  int64_t bytes = 0;   // of parameters, accumulators and optimizer state
  int64_t keys = 0;    // rows of sparse tables
  int64_t clock = 0;   // lowest version of the ranges that it serves
  int64_t newest = 0;  // highest version
  int64_t pushed_bytes = 0;
  int64_t pulled_bytes = 0;
  int64_t replica_bytes = 0;  // sent to copies
  int64_t replicas = 0;       // complete copies of what it serves, of the range with the fewest
  int64_t lag = 0;            // changes that not all copies have
  int64_t copying = 0;        // copies that it makes anew, of the ranges of so many servers
  bool schedules = false;     // it runs the scheduler
  // Of the scheduler:
  int64_t version = 0;
  std::vector<WorkerStatus> workers{};
  bool operator==(const ServerStatus&) const = default;
};

// The worker that kAskWorkerLeave names. Throws CommError.
int worker_in(const std::string& question);

nlohmann::json to_json(const ServerStatus& status);
// Throws CommError if it is not one.
ServerStatus parse_server_status(const std::string& text);

}  // namespace yoke::ps
