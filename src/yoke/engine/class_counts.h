// Which classes a classifier takes for which, counted during an evaluation.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/metrics/class_results.h"
#include "yoke/models/model.h"

namespace yoke::engine {

struct ClassScores {
  std::optional<double> top5;  // more than five classes
  std::optional<metrics::ClassResults> results;
};

// Counts of one rank, which are summed over ranks between add() and scores().
class ClassCounts {
 public:
  // Counts nothing for models that are not classifiers of images or vectors, or have more than 2,048 classes.
  explicit ClassCounts(const models::Model& model);

  // `logits` [N, classes], int64 `target` [N]; ignored where the logits are not whole.
  void add(const torch::Tensor& logits, const torch::Tensor& target);
  // Numbers to be summed: the same count on every rank.
  const std::vector<double>& sums() const { return sums_; }
  // The sums of all ranks; a sample may have counted several times, `copies` in all.
  ClassScores scores(const double* sums, double copies, std::vector<std::string> names) const;

 private:
  int64_t classes_ = 0;
  std::vector<double> sums_;  // samples, right among the first five, then [class][taken for]
};

}  // namespace yoke::engine
