#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "cli/bench_figures.h"
#include "cli/output.h"
#include "cli/run_checks.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/engine/bench_step.h"
#include "yoke/engine/largest_batch.h"
#include "yoke/engine/step_anatomy.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

nlohmann::json to_json(const engine::BenchStepResult& result) {
  nlohmann::json out = {
      {"model", result.model},
      {"batch", result.batch},
      {"precision", result.precision},
      {"device", result.device},
      {"recompute", result.recompute},
      {"samples_per_s", result.samples_per_s},
      {"step_seconds", {{"median", result.step_seconds_median}, {"p95", result.step_seconds_p95}}},
      {"tflops", result.tflops},
      {"peak_fraction", result.peak_fraction},
      {"peak_memory_bytes", result.peak_memory_bytes}};
  if (result.tokens_per_s) out["tokens_per_s"] = *result.tokens_per_s;
  if (result.largest_batch) out["largest_batch"] = *result.largest_batch;
  return out;
}

nlohmann::json to_json(const engine::StepAnatomy& anatomy) {
  nlohmann::json blocks = nlohmann::json::array(), points = nlohmann::json::array();
  for (size_t i = 0; i < anatomy.blocks.size(); ++i)
    blocks.push_back({{"name", anatomy.block_names[i]},
                      {"activation_bytes", anatomy.blocks[i].activation_bytes},
                      {"input_bytes", anatomy.blocks[i].input_bytes}});
  for (const compute::MemoryPoint& point : anatomy.pass.points)
    points.push_back({point.seconds, point.bytes});
  return {{"flops_per_sample", anatomy.flops_per_sample},
          {"parameter_bytes", anatomy.held.weights},
          {"optimizer_bytes", anatomy.held.optimizer},
          {"blocks", std::move(blocks)},
          {"block_runs", anatomy.forward_calls},
          {"activation_bytes_theory", anatomy.activation_bytes},
          {"memory", std::move(points)},
          {"forward_end", anatomy.pass.forward_end},
          {"gradients",
           {{"zeros", anatomy.gradients.zeros},
            {"lowest_exponent", anatomy.gradients.lowest_exponent},
            {"counts", anatomy.gradients.counts}}},
          {"sample_bytes", anatomy.needs.sample},
          {"fixed_bytes", anatomy.needs.base},
          {"free_bytes", anatomy.free_bytes},
          {"matmul_flops", anatomy.matmul_flops},
          {"copy_bytes_per_s", anatomy.copy_bytes_per_s}};
}

// One cell of the sweep as a configuration, so that the same checks apply.
engine::WorkerOptions cell_options(const CommandLine& line, const std::string& model, int64_t batch,
                                   const std::string& precision, const std::string& device,
                                   const std::string& recompute) {
  Configuration configuration;
  std::vector<config::Override> overrides = {
      {"model.name", model, "--model"},
      {"data.batch_size", fmt::format("{}", batch), "--batch"},
      {"train.precision", precision, "--precision"},
      {"train.device", device, "--device"},
      {"train.recompute", recompute, "--recompute"},
      {"train.threads", fmt::format("{}", line.bench_step.threads), "--threads"}};
  overrides.insert(overrides.end(), line.overrides.begin(), line.overrides.end());
  configuration.load("", overrides);
  check_memory(configuration.values);
  engine::WorkerOptions options = worker_options(configuration.values);
  options.copies_state = false;  // nothing is saved, nothing loaded
  options.batches_ahead = 0;
  return options;
}

// Columns that are equal in every row are omitted, so that the table fits a terminal.
void print_table(const std::vector<engine::BenchStepResult>& results) {
  auto any = [&](auto predicate) { return std::any_of(results.begin(), results.end(), predicate); };
  bool devices = any([&](const auto& r) { return r.device != results[0].device; });
  bool recomputes = any([](const auto& r) { return r.recompute != "none"; });
  bool tokens = any([](const auto& r) { return r.tokens_per_s.has_value(); });
  std::vector<std::string> header = {"model", "batch", "precision"};
  if (devices) header.push_back("device");
  if (recomputes) header.push_back("recompute");
  header.push_back("samples/s");
  if (tokens) header.push_back("tokens/s");
  for (const char* name : {"step", "p95", "TFLOP/s", "of peak", "memory"}) header.push_back(name);
  report::Table table(header);
  for (const engine::BenchStepResult& r : results) {
    std::vector<std::string> row = {r.model, fmt::format("{}", r.batch), r.precision};
    if (devices) row.push_back(r.device);
    if (recomputes) row.push_back(r.recompute);
    row.push_back(format_short(r.samples_per_s));
    if (tokens) row.push_back(r.tokens_per_s ? format_short(*r.tokens_per_s) : "");
    row.push_back(format_duration(r.step_seconds_median));
    row.push_back(format_duration(r.step_seconds_p95));
    row.push_back(fmt::format("{:.3g}", r.tflops));
    row.push_back(fmt::format("{:.0f} %", 100 * r.peak_fraction));
    row.push_back(format_bytes(static_cast<double>(r.peak_memory_bytes)));
    table.add(std::move(row));
  }
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
}

// The batch size of a cell whose batch is to be searched for.
constexpr int64_t kUnknownBatch = 1;

}  // namespace

int run_bench_step(const CommandLine& line) {
  const BenchStepArguments& arguments = line.bench_step;
  const std::vector<int64_t> batches =
      arguments.largest_batch ? std::vector<int64_t>{kUnknownBatch} : arguments.batches;
  check_figures(line.figures);
  std::vector<engine::BenchStepResult> results;
  nlohmann::json rows = nlohmann::json::array();
  auto measure = [&](const engine::WorkerOptions& options) {
    auto bench = arguments.largest_batch ? engine::bench_largest_batch : engine::bench_step;
    results.push_back(bench(options, arguments.steps));
    rows.push_back(to_json(results.back()));
    if (arguments.anatomy) {
      engine::WorkerOptions same = options;
      same.batch_size = results.back().batch;
      rows.back()["anatomy"] = to_json(engine::dissect_step(same));
    }
    // After each: a later one may not fit into memory.
    if (!arguments.result_file.empty()) write_file_atomically(arguments.result_file, rows.dump());
  };
  for (const std::string& model : arguments.models) {
    for (const std::string& device : arguments.devices) {
      for (const std::string& precision : arguments.precisions) {
        for (const std::string& recompute : arguments.recomputes) {
          for (int64_t batch : batches) {
            log::info("bench step: {} batch {} {} on {}, recompute {}", model,
                      arguments.largest_batch ? "as large as fits" : fmt::format("{}", batch), precision,
                      device, recompute);
            measure(cell_options(line, model, batch, precision, device, recompute));
          }
        }
      }
    }
  }
  if (line.figures.wanted()) write_figures(line.figures, titled(step_figures(rows), line));
  if (!arguments.result_file.empty()) return 0;
  if (line.json)
    print_json({{"results", rows}});
  else
    print_table(results);
  return 0;
}

}  // namespace yoke::cli
