#include "cli/torch/memory_failure.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/base/units.h"

namespace yoke::cli {
namespace {

constexpr double kTolerance = 1.05;

cluster::FailureReport report_of(cluster::World& job, const std::string& how, ExitCode code) {
  cluster::FailureReport report;
  report.rank = job.rank();
  report.host = job.members()[static_cast<size_t>(job.rank())].host;
  report.pid = ::getpid();
  report.kind = "exception";
  report.what = fmt::format("rank {} on {} (pid {}) {}", report.rank, report.host, report.pid, how);
  report.exit_code = static_cast<int>(code);
  return report;
}

}  // namespace

std::function<engine::OutOfMemory(const std::exception&, const std::string&)> memory_report(
    engine::Worker& worker, const engine::WorkerOptions& options) {
  return [&worker, &options](const std::exception& error, const std::string& doing) {
    return engine::OutOfMemory(engine::describe_out_of_memory(error, doing, worker, options));
  };
}

int telling_others(cluster::World& job, const std::function<int()>& work) {
  try {
    return work();
  } catch (const engine::OutOfMemory& error) {
    if (!job.alone()) job.session().fail(report_of(job, "is " + std::string(error.what()), error.code()));
    throw;
  } catch (const CheckpointError& error) {  // possibly on the first rank only: its exit code is the job's
    if (!job.alone())
      job.session().fail(report_of(job, "failed: " + std::string(error.what()), error.code()));
    throw;
  } catch (const Error&) {  // the same on all ranks, or already reported
    throw;
  } catch (const std::exception& error) {
    if (!job.alone())
      job.session().fail(report_of(job, "failed: " + std::string(error.what()), ExitCode::kInternal));
    throw;
  }
}

int64_t evaluation_batch(const RunConfig& config, const engine::Worker& worker) {
  return std::min(config.data.batch_size, worker.evaluation_batch);
}

void check_budget_was_kept(const RunConfig& config, int64_t peak_bytes) {
  auto budget = compute::recompute_budget(config.train.compute.recompute);
  if (!budget || static_cast<double>(peak_bytes) <= kTolerance * static_cast<double>(*budget)) return;
  log::warn(
      "train.recompute = {}: the run's peak memory was {}. Data sets, evaluation or communication took the "
      "rest.",
      config.train.compute.recompute, format_bytes(static_cast<double>(peak_bytes)));
}

}  // namespace yoke::cli
