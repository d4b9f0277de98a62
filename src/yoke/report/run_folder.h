// What a run left in its folder, as far as it can be read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  std::vector<LossPoint> server_losses;  // of all workers of parameter servers; empty: of another run
  // For whoever can simulate to fill in; read_run() leaves it empty.
  std::optional<PipelineComparison> pipeline;
  std::vector<std::string> notes;  // what is missing or damaged, for people
};

// Reads config.toml, metrics.jsonl and summary.json, and the losses in ps.json. Each may be missing or torn:
// a note says so. Throws ConfigError where none of them is there.
RunFolder read_run(const std::filesystem::path& path);

// The sections of a configuration as `yoke` writes it: [section] and key = value lines. Other lines are
// passed over, so that a torn file still shows what it has.
std::vector<ConfigSection> read_config(std::string_view toml);

// The value of "section.key" without its quotes; "" where there is none.
std::string config_value(const RunFolder& run, std::string_view section, std::string_view key);

}  // namespace yoke::report
