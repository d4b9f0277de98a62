// Ways of averaging side by side: loss against time on a link and against bytes sent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/report/lab_page.h"
#include "yoke/report/points.h"

namespace yoke::report {

struct AveragedRun {
  std::string name;  // of the method
  struct Step {
    double seconds = 0;  // on the link
    double bytes = 0;    // sent by a rank
    double loss = 0;     // mean over the ranks' own batches
  };
  // Makes each loss the mean of the last `count`, so that no lucky minibatch reaches the target.
  void average_records(size_t count);

  std::vector<Step> steps;
  double final_loss = 0;
  std::optional<double> test_loss;  // of the average at the end
  std::optional<double> seconds_to_target, bytes_to_target;
};

// `ideal`: ddp as if nothing were sent, drawn dashed against time; empty: not drawn.
void add_averaging(LabPage& page, double target, const std::vector<AveragedRun>& runs,
                   const std::vector<AveragedRun::Step>& ideal = {});

}  // namespace yoke::report
