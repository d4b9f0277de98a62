// Several runs laid over each other: loss against steps, time, samples and bytes, and who reaches a loss
// first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/report/lab_page.h"
#include "yoke/report/run_folder.h"

namespace yoke::report {

struct RunCurve {
  std::string name;
  RunFolder run;
  double bytes_per_step = 0;  // sent by the busiest rank; 0: unknown
  std::optional<double> seconds_to_target{};
  std::optional<int64_t> steps_to_target{};
  std::optional<int64_t> samples_to_target{};
  std::optional<double> bytes_to_target{};
};

// `name` appears in legends. Throws ConfigError if the folder has no records.
RunCurve curve_of(const std::string& name, const std::filesystem::path& folder);

// The lowest mean loss that all runs reach. Requires runs.
double common_target(const std::vector<RunCurve>& runs);
void find_target(std::vector<RunCurve>& runs, double target);

LabPage runs_page(const std::vector<RunCurve>& runs, double target);

}  // namespace yoke::report
