#include "cli/bench_scaling_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/bench_figures.h"
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
#include "yoke/parallel/fit.h"
#include "yoke/parallel/membership.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

// A temporary folder for the results of ranks.
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

// Keys that need several ranks: the run on one rank, the baseline, leaves them out.
bool needs_ranks(const std::string& key) {
  return (key.starts_with("parallel.") && key != "parallel.backend") || key.starts_with("pipeline.");
}

// Options of the ranks: the same keys as in a configuration, so that the same checks apply.
std::vector<std::string> words_for(const CommandLine& line, const ScalingCell& cell, int nproc,
                                   const fs::path& result) {
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
  for (const config::Override& change : line.overrides)
    if (nproc > 1 || !needs_ranks(change.key)) set(change.key, change.value);
  return words;
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
               row.contains("communication_efficiency")
                   ? fmt::format("{:.1f} %", 100 * number("communication_efficiency"))
                   : "–"});
  }
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  fmt::print(
      "efficiency: samples/s on n ranks / n times that of one rank, same batch per replica.\n"
      "without comm: speed relative to the same ranks without communication; parts of a model have none.\n");
}

// A typed key replaces its option.
std::vector<std::string> values_of(const CommandLine& line, const std::string& key,
                                   const std::vector<std::string>& option) {
  for (const config::Override& change : line.overrides)
    if (change.key == key) return {change.value};
  return option;
}

std::vector<ScalingCell> cells_of(const CommandLine& line) {
  const BenchScalingArguments& arguments = line.bench_scaling;
  std::vector<ScalingCell> cells;
  for (const std::string& model : arguments.models)
    for (int64_t batch : arguments.batches)
      for (const std::string& precision : values_of(line, "train.precision", arguments.precisions))
        for (const std::string& bucket : values_of(line, "ddp.bucket_bytes", arguments.buckets))
          cells.push_back({model, batch, precision, bucket});
  return cells;
}

}  // namespace

int check_scaling(const CommandLine& line, const ScalingCell& cell, int nproc) {
  CommandLine own = parse_command_line(words_for(line, cell, nproc, "-"));
  Configuration configuration;
  configuration.load("", own.overrides);
  RunConfig& config = configuration.values;
  if (parallel::ranks_of(config, nproc) != nproc || parallel::in_one_process(config))
    throw ConfigError(
        "parallel.sync = \"{}\": bench scaling measures ranks that exchange gradients directly.",
        config.parallel.sync);
  check_memory(config);
  check_workers(config, nproc);
  return parallel::mesh_of(config, nproc).data;
}

nlohmann::json measure_scaling(const CommandLine& line, const ScalingCell& cell, int nproc,
                               const std::filesystem::path& result) {
  const int replicas = check_scaling(line, cell, nproc);
  fs::remove(result);
  log::info("bench scaling: {} batch {} {}, {} rank{}", cell.model, cell.batch, cell.precision, nproc,
            nproc == 1 ? "" : "s");
  int code = cluster::run_job(cluster::own_job(nproc, words_for(line, cell, nproc, result)));
  if (code != 0) throw Error(static_cast<ExitCode>(code), "the ranks failed; see above");
  nlohmann::json row = parse_json(read_file(result), result.string());
  double median = row["step_seconds"]["median"];
  row["model"] = cell.model;
  row["batch"] = cell.batch;
  row["precision"] = cell.precision;
  row["bucket_bytes"] = parse_bytes(cell.bucket).value_or(0);
  row["nproc"] = nproc;
  row["replicas"] = replicas;
  row["samples_per_s"] = static_cast<double>(cell.batch * replicas) / median;
  if (row.contains("alone_step_seconds"))
    row["communication_efficiency"] = row["alone_step_seconds"].get<double>() / median;
  return row;
}

StepTime step_time(const nlohmann::json& row) {
  const double step = row.at("step_seconds").at("median");
  if (!row.contains("compute_seconds")) return {.undivided = step};
  StepTime time{.compute = std::min(step, row["compute_seconds"].get<double>())};
  const bool staged = !row.contains("alone_step_seconds");
  if (!staged)
    time.communication = std::clamp(row["exposed_comm_seconds"].get<double>(), 0.0, step - time.compute);
  time.waiting = step - time.compute - time.communication;
  return time;
}

int bench_scaling(const CommandLine& line) {
  std::vector<int> sizes = line.bench_scaling.nproc;
  if (std::find(sizes.begin(), sizes.end(), 1) == sizes.end()) sizes.insert(sizes.begin(), 1);
  std::vector<ScalingCell> cells = cells_of(line);
  for (const ScalingCell& cell : cells)  // all are checked before the first
    for (int nproc : sizes) check_scaling(line, cell, nproc);
  check_figures(line.figures);
  Desk desk;
  nlohmann::json rows = nlohmann::json::array();
  for (const ScalingCell& cell : cells) {
    double one = 0;  // samples/s
    for (int nproc : sizes) {
      nlohmann::json row = measure_scaling(line, cell, nproc, desk.path / "result.json");
      const double speed = row["samples_per_s"];
      if (nproc == 1) one = speed;
      row["scaling_efficiency"] = speed / (one * nproc);
      row["ideal_samples_per_s"] = one * nproc;
      rows.push_back(std::move(row));
    }
  }
  if (line.figures.wanted()) write_figures(line.figures, titled(scaling_figures(rows), line));
  if (line.json)
    print_json({{"results", rows}});
  else
    print_table(rows);
  return 0;
}

}  // namespace yoke::cli
