// Records that a process which wrote them into the run's folder may have taken along when it died.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "yoke/metrics/fanout.h"

namespace yoke::metrics {

// As Fanout; after start(), its sinks are given those of `recent` that the metrics.jsonl at `path` lacks: the
// ones after its last record and up to the step from which the run continues.
class CatchUp : public Fanout {
 public:
  CatchUp(std::filesystem::path path, std::vector<Record> recent)
      : path_(std::move(path)), recent_(std::move(recent)) {}

  void start(const RunInfo& info) override;

 private:
  std::filesystem::path path_;
  std::vector<Record> recent_;
};

// The records of both, each step once and in order; at most the last `most`.
std::vector<Record> merge_records(std::vector<Record> one, const std::vector<Record>& other, size_t most);

}  // namespace yoke::metrics
