#include "yoke/report/run_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/metrics/jsonl.h"

namespace yoke::report {
namespace {

constexpr int64_t kLargestText = int64_t{16} << 20;

// Removes a comment outside quotes.
std::string_view without_comment(std::string_view line) {
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\') {
      ++i;
    } else if (quote != '\0') {
      if (line[i] == quote) quote = '\0';
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

bool present(const RunFolder& run, const char* file) {
  std::error_code none;
  return std::filesystem::exists(run.path / file, none);
}

void read_configuration(RunFolder& run) {
  if (!present(run, "config.toml")) {
    run.notes.emplace_back("config.toml is missing: the configuration is not shown.");
    return;
  }
  try {
    run.config = read_config(read_file(run.path / "config.toml", kLargestText));
    if (run.config.empty())
      run.notes.emplace_back("config.toml is empty or truncated: the configuration is not shown.");
  } catch (const ConfigError& error) {
    run.notes.emplace_back(error.what());
  }
}

void note_losses(RunFolder& run) {
  auto bad = [](const metrics::Record& record) { return !std::isfinite(record.loss); };
  auto first = std::find_if(run.records.begin(), run.records.end(), bad);
  if (first == run.records.end()) return;
  run.notes.push_back(fmt::format("The loss is not a finite number in {} of {} records, first at step {}.",
                                  std::count_if(run.records.begin(), run.records.end(), bad),
                                  run.records.size(), first->step));
}

void read_metrics(RunFolder& run) {
  if (!present(run, "metrics.jsonl")) {
    run.notes.emplace_back("metrics.jsonl is missing: there are no curves.");
    return;
  }
  try {
    metrics::RecordFile file = metrics::read_records(run.path / "metrics.jsonl");
    run.records = std::move(file.records);
    if (run.records.empty())
      run.notes.emplace_back("metrics.jsonl holds no records yet: there are no curves.");
    int64_t whole = file.bad_lines - (file.torn_end ? 1 : 0);
    if (file.torn_end)
      run.notes.emplace_back("The last line of metrics.jsonl is truncated and was left out.");
    if (whole > 0) {
      run.notes.push_back(fmt::format("metrics.jsonl: {} damaged line{} left out, first line {}: {}", whole,
                                      whole == 1 ? " was" : "s were", file.first_bad_line, file.first_error));
    }
    note_losses(run);
  } catch (const ConfigError& error) {
    run.notes.emplace_back(error.what());
  }
}

// A ps.json in the folder may be from an earlier run with servers, which this one continued without.
void read_server_losses(RunFolder& run) {
  if (!present(run, "ps.json") || config_value(run, "parallel", "sync") != "ps") return;
  try {
    run.server_losses = loss_curve_of(nlohmann::json::parse(read_file(run.path / "ps.json", kLargestText)));
  } catch (const std::exception&) {
    run.notes.emplace_back("ps.json cannot be read: the losses are those of the first worker.");
  }
}

void read_summary(RunFolder& run) {
  if (!present(run, "summary.json")) {
    run.notes.emplace_back("summary.json is missing: the run has not finished or was stopped early.");
    return;
  }
  try {
    run.summary = metrics::parse_summary(read_file(run.path / "summary.json", kLargestText));
  } catch (const ConfigError& error) {
    run.notes.push_back(fmt::format("summary.json cannot be read: {}", error.what()));
  }
}

void read_partition(RunFolder& run) {
  if (!present(run, "partition.json")) return;
  try {
    run.partition =
        metrics::parse_partition_run(read_file(run.path / "partition.json", kLargestText), "partition.json");
  } catch (const ConfigError& error) {
    run.notes.push_back(fmt::format("partition.json cannot be drawn: {}", error.what()));
  }
}

}  // namespace

std::vector<ConfigSection> read_config(std::string_view toml) {
  std::vector<ConfigSection> sections;
  for (const std::string& raw : split(toml, '\n')) {
    std::string line = trim(without_comment(raw));
    if (line.size() > 2 && line.front() == '[' && line.back() == ']') {
      sections.push_back({trim(std::string_view(line).substr(1, line.size() - 2)), {}});
      continue;
    }
    size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    if (sections.empty()) sections.push_back({"", {}});
    sections.back().values.emplace_back(trim(std::string_view(line).substr(0, equals)),
                                        trim(std::string_view(line).substr(equals + 1)));
  }
  std::erase_if(sections, [](const ConfigSection& section) { return section.values.empty(); });
  return sections;
}

std::string config_value(const RunFolder& run, std::string_view section, std::string_view key) {
  for (const ConfigSection& candidate : run.config) {
    if (candidate.name != section) continue;
    for (const auto& [name, value] : candidate.values) {
      if (name != key) continue;
      bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
      return quoted ? value.substr(1, value.size() - 2) : value;
    }
  }
  return "";
}

RunFolder read_run(const std::filesystem::path& path) {
  RunFolder run;
  run.path = path;
  if (!present(run, "config.toml") && !present(run, "metrics.jsonl") && !present(run, "summary.json")) {
    throw ConfigError(
        "{}: not a run folder: it has no config.toml, metrics.jsonl or summary.json. Give the folder written "
        "by `yoke train` (out.dir).",
        path.string());
  }
  read_configuration(run);
  read_metrics(run);
  read_summary(run);
  read_server_losses(run);
  read_partition(run);
  return run;
}

}  // namespace yoke::report
