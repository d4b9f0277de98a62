// Ways of training the same model side by side: who reaches an accuracy first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/report/lab_page.h"
#include "yoke/report/points.h"

namespace yoke::report {

struct RacedRun {
  std::string name;           // of the method
  std::vector<Point> points;  // seconds and accuracy of each evaluation
  double final_loss = 0;
  std::optional<double> seconds_to_target{};
  std::vector<Point> by_epoch{};  // epochs and accuracy of the same evaluations

  double best() const;  // accuracy; 0: none was measured
};

// Sets seconds_to_target of all runs.
void find_target(std::vector<RacedRun>& runs, double target);

// What a perfect method would do, drawn dashed.
struct IdealRace {
  std::string name;
  std::vector<Point> points;  // seconds and accuracy
};

void add_accuracy_race(LabPage& page, double target, const std::vector<RacedRun>& runs,
                       const IdealRace& ideal = {});

}  // namespace yoke::report
