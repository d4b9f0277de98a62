#include "cli/bench_scaling_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/output.h"
#include "cli/run_checks.h"
#include "cli/run_config.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

// A folder for what ranks leave, gone with the command.
class Desk {
 public:
  Desk() {
    std::string name = (fs::temp_directory_path() / "yoke-scaling-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw ConfigError("{}: {}. Set TMPDIR.", name, describe_errno(errno));
    path = name;
  }
  ~Desk() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  fs::path path;
};

struct Cell {
  std::string model;
  int64_t batch = 0;
  std::string precision;
  std::string bucket;
};

// What the ranks are told: the same keys as a configuration, so that the same checks apply.
std::vector<std::string> words_for(const CommandLine& line, const Cell& cell, const fs::path& result) {
  const BenchScalingArguments& arguments = line.bench_scaling;
  std::vector<std::string> words = {"bench",         "scaling", "--rank-result",
                                    result.string(), "--steps", fmt::format("{}", arguments.steps)};
  auto set = [&](const std::string& key, const std::string& value) {
    words.push_back("--" + key);
    words.push_back(value);
  };
  set("model.name", cell.model);
  set("data.batch_size", fmt::format("{}", cell.batch));
  set("train.precision", cell.precision);
  set("train.device", arguments.device);
  set("train.threads", fmt::format("{}", arguments.threads));
  set("parallel.backend", arguments.backend);
  set("ddp.bucket_bytes", cell.bucket);
  for (const config::Override& change : line.overrides) set(change.key, change.value);
  return words;
}

// What the ranks would refuse, before any is started.
void check(const CommandLine& line, const Cell& cell, int nproc) {
  CommandLine own = parse_command_line(words_for(line, cell, "-"));
  Configuration configuration;
  configuration.load("", own.overrides);
  check_memory(configuration.values);
  check_workers(configuration.values, nproc);
}

nlohmann::json measure(const CommandLine& line, const Cell& cell, int nproc, const Desk& desk) {
  fs::path result = desk.path / "result.json";
  fs::remove(result);
  log::info("bench scaling: {} batch {} {}, {} rank{}", cell.model, cell.batch, cell.precision, nproc,
            nproc == 1 ? "" : "s");
  int code = cluster::run_job(cluster::own_job(nproc, words_for(line, cell, result)));
  if (code != 0) throw Error(static_cast<ExitCode>(code), "the ranks failed; see above");
  nlohmann::json row = parse_json(read_file(result), result.string());
  double median = row["step_seconds"]["median"];
  row["model"] = cell.model;
  row["batch"] = cell.batch;
  row["precision"] = cell.precision;
  row["bucket_bytes"] = parse_bytes(cell.bucket).value_or(0);
  row["nproc"] = nproc;
  row["samples_per_s"] = static_cast<double>(cell.batch * nproc) / median;
  row["communication_efficiency"] = row["alone_step_seconds"].get<double>() / median;
  return row;
}

void print_table(const nlohmann::json& rows) {
  report::Table table({"model", "batch", "ranks", "step", "samples/s", "ideal", "efficiency", "comm",
                       "exposed", "sent/step", "without comm"});
  for (const auto& row : rows) {
    auto number = [&](const char* key) { return row[key].get<double>(); };
    double median = row["step_seconds"]["median"];
    table.add({row["model"], fmt::format("{}", row["batch"].get<int64_t>()),
               fmt::format("{}", row["nproc"].get<int>()), format_duration(median),
               format_short(number("samples_per_s")), format_short(number("ideal_samples_per_s")),
               fmt::format("{:.1f} %", 100 * number("scaling_efficiency")),
               format_duration(number("comm_seconds")), format_duration(number("exposed_comm_seconds")),
               format_bytes(number("bytes_sent")),
               fmt::format("{:.1f} %", 100 * number("communication_efficiency"))});
  }
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  fmt::print(
      "efficiency: step on one rank / step on n ranks, same batch each.  without comm: share of the speed "
      "of\n"
      "the same ranks when they do not communicate.\n");
}

// A typed key takes the place of its option.
std::vector<std::string> values_of(const CommandLine& line, const std::string& key,
                                   const std::vector<std::string>& option) {
  for (const config::Override& change : line.overrides)
    if (change.key == key) return {change.value};
  return option;
}

std::vector<Cell> cells_of(const CommandLine& line) {
  const BenchScalingArguments& arguments = line.bench_scaling;
  std::vector<Cell> cells;
  for (const std::string& model : arguments.models)
    for (int64_t batch : arguments.batches)
      for (const std::string& precision : values_of(line, "train.precision", arguments.precisions))
        for (const std::string& bucket : values_of(line, "ddp.bucket_bytes", arguments.buckets))
          cells.push_back({model, batch, precision, bucket});
  return cells;
}

}  // namespace

int bench_scaling(const CommandLine& line) {
  std::vector<int> sizes = line.bench_scaling.nproc;
  if (std::find(sizes.begin(), sizes.end(), 1) == sizes.end()) sizes.insert(sizes.begin(), 1);
  std::vector<Cell> cells = cells_of(line);
  for (const Cell& cell : cells)
    for (int nproc : sizes) check(line, cell, nproc);
  Desk desk;
  nlohmann::json rows = nlohmann::json::array();
  for (const Cell& cell : cells) {
    double one = 0;
    for (int nproc : sizes) {
      nlohmann::json row = measure(line, cell, nproc, desk);
      double median = row["step_seconds"]["median"];
      if (nproc == 1) one = median;
      row["scaling_efficiency"] = one / median;
      row["ideal_samples_per_s"] = static_cast<double>(cell.batch * nproc) / one;
      rows.push_back(std::move(row));
    }
  }
  if (line.json)
    print_json({{"results", rows}});
  else
    print_table(rows);
  return 0;
}

}  // namespace yoke::cli
