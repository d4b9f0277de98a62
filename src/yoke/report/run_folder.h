// The contents of a run's folder, as far as they can be read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/metrics/partition_run.h"
#include "yoke/metrics/record.h"
#include "yoke/metrics/summary.h"
#include "yoke/report/loss_curve.h"
#include "yoke/report/pipeline_comparison.h"

namespace yoke::report {

struct ConfigSection {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // key, value as TOML
};

struct RunFolder {
  std::filesystem::path path;
  std::vector<ConfigSection> config;
  std::vector<metrics::Record> records;  // by increasing step
  std::optional<metrics::Summary> summary;
  std::vector<LossPoint> server_losses;  // over all workers of parameter servers; empty: none
  // Filled in by callers that can simulate; read_run() leaves it empty.
  std::optional<PipelineComparison> pipeline;
  std::optional<metrics::PartitionRun> partition;  // partition.json
  std::vector<std::string> notes;                  // what is missing or damaged, for people
};

// Reads config.toml, metrics.jsonl and summary.json, the losses in ps.json, and partition.json. Each may be
// missing or truncated, which is noted. Throws ConfigError if none of them exists.
RunFolder read_run(const std::filesystem::path& path);

// The sections of a configuration as written by `yoke`: [section] and key = value lines. Other lines are
// ignored, so that a truncated file still shows its contents.
std::vector<ConfigSection> read_config(std::string_view toml);

// The value of "section.key" without its quotes; "" if missing.
std::string config_value(const RunFolder& run, std::string_view section, std::string_view key);

}  // namespace yoke::report
