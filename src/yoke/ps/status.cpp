#include "yoke/ps/status.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::ps {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerStatus, id, clock, minibatch, staleness, compute_seconds, state)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerStatus, id, ranges, copies, bytes, keys, clock, newest, pushed_bytes,
                                   pulled_bytes, replica_bytes, replicas, lag, copying, schedules, version,
                                   workers)

int worker_in(const std::string& question) {
  const size_t start = std::string(kAskWorkerLeave).size();
  int worker = -1;
  const char* end = question.data() + question.size();
  const auto [rest, error] = std::from_chars(question.data() + std::min(start, question.size()), end, worker);
  if (error != std::errc{} || rest != end) throw CommError("'{}' names no worker", question);
  return worker;
}

nlohmann::json to_json(const ServerStatus& status) {
  nlohmann::json json;
  to_json(json, status);
  return json;
}

ServerStatus parse_server_status(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<ServerStatus>();
  } catch (const nlohmann::json::exception&) {
    throw CommError("a server answered with something else than its status");
  }
}

}  // namespace yoke::ps
