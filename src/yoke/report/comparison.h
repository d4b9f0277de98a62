// Several runs of the same model side by side: loss against time and updates, staleness, time to the target
// loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/record.h"
#include "yoke/report/lab_page.h"

namespace yoke::report {

struct ComparedRun {
  std::string name;  // of the rule
  int64_t k = 0;
  std::vector<metrics::Record> records;
  std::vector<int64_t> staleness;  // histogram
  double staleness_mean = 0;
  double idle_fraction = 0;
  double updates_per_s = 0;
  double final_loss = 0;
  double loss_floor = 0;  // mean loss of the last quarter of the run
  std::optional<double> seconds_to_target;
  std::optional<double> rate_kept;  // fraction of the update rate without delays
};

// Seconds until the loss is at most `target` for the first time; empty: never.
std::optional<double> seconds_to(const std::vector<metrics::Record>& records, double target);

// What the runs show, with the definitions of what is compared. `least_loss`: the entropy of noisy labels,
// which no model goes below; 0: unknown.
void add_comparison(LabPage& page, double target, const std::vector<ComparedRun>& runs,
                    double least_loss = 0);

}  // namespace yoke::report
