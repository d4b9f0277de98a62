// What `yoke ps top` shows: the state of a running job with parameter servers, as a table of 80 columns or
// JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/ps/status.h"

namespace yoke::cli {

struct PsJobStatus {
  double time = 0;  // seconds, of any clock
  std::vector<ps::ServerStatus> servers{};
  std::vector<std::string> absent{};  // servers that are lost or do not answer, and why

  // The server that runs the scheduler; nullptr: it did not answer.
  const ps::ServerStatus* scheduler() const;
};

// Rates are those since `before`; without it they are unknown.
std::string draw_table(const PsJobStatus& now, const std::optional<PsJobStatus>& before);
nlohmann::json to_json(const PsJobStatus& now, const std::optional<PsJobStatus>& before);

}  // namespace yoke::cli
