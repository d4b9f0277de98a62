#include "cli/bench_ps_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/output.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/ps/bench.h"
#include "yoke/report/table.h"
#include "yoke/sim/ps_simulation.h"

namespace yoke::cli {
namespace {

constexpr double kComputeSeconds = 1e-3;  // of a minibatch under laws that are not a time by themselves
constexpr int64_t kMostWorkers = 1 << 16;
constexpr int64_t kMostRealRanks = 256;  // threads of this process
constexpr int64_t kMostRealBytes = int64_t{4} << 30;
constexpr int64_t kRealUpdates = 1000;
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int64_t kMostUpdates = 1'000'000'000;
constexpr double kReportSeconds = 5;  // between lines of progress
constexpr int64_t kWarmUp = 1000;     // updates
constexpr int64_t kVirtualUpdates = 100'000;
constexpr double kRelaxations = 20;  // the quadratic forgets its start e^-20 times

void check_range(const char* option, int64_t value, int64_t most) {
  if (value < 1 || value > most)
    throw ConfigError("{} {}: expected an integer from 1 to {}.", option, value, most);
}

plan::PolicyOptions policy_of(const BenchPsArguments& arguments) {
  plan::PolicyOptions options;
  options.rule = plan::parse_rule(arguments.policy);
  options.workers = static_cast<int>(*arguments.workers);
  options.k = arguments.k;
  options.max_delay = plan::parse_max_delay("--max-delay", arguments.max_delay);
  const plan::RuleTraits& traits = plan::traits_of(options.rule);
  if (traits.k == plan::RuleTraits::kGiven && options.k == 0)
    throw ConfigError("--policy {}: needs --k, the number of gradients per update.", arguments.policy);
  if (traits.k != plan::RuleTraits::kGiven && options.k != 0)
    log::warn("--k {} is ignored: {} has no K", options.k, arguments.policy);
  if (!traits.gated && options.max_delay != 0)
    log::warn("--max-delay {} is ignored: {} has no delay bound", arguments.max_delay, arguments.policy);
  plan::validate(options);
  return options;
}

double compute_of(const BenchPsArguments& arguments, const plan::DelayLaw& law) {
  if (arguments.compute.empty())
    return law.mean(0) > 0 && arguments.delay_workers.empty() ? 0 : kComputeSeconds;
  auto seconds = parse_duration(arguments.compute);
  if (!seconds) throw ConfigError("--compute {}: not a time. Accepted: 5ms, 2s, …", arguments.compute);
  return *seconds;
}

std::optional<plan::Quadratic> objective_of(const BenchPsArguments& arguments) {
  if (arguments.objective.empty()) return std::nullopt;
  if (arguments.objective != "quadratic")
    throw ConfigError("--objective {}: unknown. Accepted: quadratic.", arguments.objective);
  if (!(arguments.lr > 0 && arguments.lr < 2))
    throw ConfigError("--lr {}: expected a number between 0 and 2; from 2 on w^2/2 diverges.", arguments.lr);
  if (!(arguments.noise >= 0) || !std::isfinite(arguments.noise))
    throw ConfigError("--noise {}: expected a number of at least 0.", arguments.noise);
  return plan::Quadratic{arguments.noise, arguments.lr};
}

// Periodic progress lines.
std::function<void(int64_t)> progress_of(int64_t updates) {
  return [updates, watch = Stopwatch(), since_report = Stopwatch()](int64_t done) mutable {
    if (done == 0 || since_report.seconds() < kReportSeconds) return;
    since_report.lap();
    double share = static_cast<double>(done) / static_cast<double>(updates), elapsed = watch.seconds();
    log::info("{:.0f} % of the updates, {}/s, {} left", 100 * share,
              format_short(static_cast<double>(done) / elapsed),
              format_duration(elapsed * (1 - share) / share));
  };
}

// Long enough to forget the start, but no longer than the measurement.
int64_t warm_up_of(const BenchPsArguments& arguments, int64_t updates, bool real) {
  int64_t least = real ? std::clamp<int64_t>(updates / 10, 10, kWarmUp) : kWarmUp;
  if (arguments.objective.empty()) return least;
  double relaxed = std::ceil(kRelaxations * static_cast<double>(*arguments.workers) / arguments.lr);
  int64_t forgets = std::max(kWarmUp, static_cast<int64_t>(std::min(relaxed, static_cast<double>(updates))));
  return std::max(least, real ? std::min(forgets, updates) : forgets);
}

plan::PolicyExperiment experiment_of(const BenchPsArguments& arguments) {
  if (arguments.policy.empty())
    throw ConfigError("--policy is required: one of {}.", join(plan::rule_names(), " "));
  if (!arguments.workers) throw ConfigError("--workers is required: the number of workers.");
  check_range("--workers", *arguments.workers, kMostWorkers);
  check_range("--servers", arguments.servers, kMostWorkers);
  if (arguments.updates) check_range("--updates", *arguments.updates, kMostUpdates);
  const bool real = arguments.clock == "real";
  plan::PolicyExperiment experiment;
  experiment.policy = policy_of(arguments);
  experiment.law = plan::parse_delay_law(arguments.delay);
  experiment.link = plan::parse_link_law(arguments.link_delay);
  experiment.slow =
      plan::parse_slow_workers("--delay-workers", arguments.delay_workers, experiment.policy.workers);
  experiment.compute = compute_of(arguments, experiment.law);
  experiment.updates = arguments.updates.value_or(real ? kRealUpdates : kVirtualUpdates);
  experiment.seed = arguments.seed;
  experiment.objective = objective_of(arguments);
  experiment.warm_up = warm_up_of(arguments, experiment.updates, real);
  auto bytes = parse_bytes(arguments.bytes);
  if (!bytes) throw ConfigError("--bytes {}: not a size. Accepted: 64K, 25MB, …", arguments.bytes);
  experiment.bytes = *bytes;
  experiment.progress = progress_of(experiment.updates);
  return experiment;
}

// Fields common to both clocks.
struct Told {
  int64_t updates = 0, gradients = 0, cancelled = 0, bytes = 0;
  double seconds_per_update = 0, mean_staleness = 0, fresh = 0, idle_fraction = 0;
  std::vector<int64_t> staleness;
  std::optional<double> loss_floor;
};

Told told_of(const sim::PsOutcome& outcome) {
  return {outcome.updates,
          outcome.gradients,
          outcome.cancelled,
          outcome.bytes,
          outcome.seconds_per_update(),
          outcome.mean_staleness,
          outcome.fresh(),
          outcome.idle_fraction,
          outcome.staleness,
          outcome.loss_floor};
}

Told told_of(const ps::PolicyBenchResult& result) {
  const ps::Accounting& counts = result.counts;
  return {counts.updates,
          counts.gradients,
          counts.cancelled,
          result.bytes,
          counts.seconds_per_update(),
          counts.mean_staleness(),
          counts.fresh(),
          counts.idle_fraction(),
          counts.staleness,
          result.loss_floor};
}

nlohmann::json to_json(const BenchPsArguments& arguments, const plan::PolicyExperiment& experiment,
                       const Told& told) {
  nlohmann::json document = {
      {"policy", arguments.policy},
      {"workers", *arguments.workers},
      {"k", plan::effective_k(experiment.policy)},
      {"updates", told.updates},
      {"seconds_per_update", told.seconds_per_update},
      {"staleness", {{"mean", told.mean_staleness}, {"fresh", told.fresh}, {"histogram", told.staleness}}},
      {"idle_fraction", told.idle_fraction},
      {"cancelled", told.cancelled},
      {"gradients", told.gradients},
      {"bytes", told.bytes},
      {"clock", arguments.clock},
      {"delay", to_string(experiment.law)},
      {"link_delay", to_string(experiment.link)},
      {"servers", arguments.servers},
      {"bytes_per_server", told.bytes / arguments.servers},
      {"seed", arguments.seed}};
  int64_t delay = experiment.policy.max_delay;
  if (plan::traits_of(experiment.policy.rule).gated)
    document["max_delay"] =
        delay == plan::PolicyOptions::kUnbounded ? nlohmann::json("inf") : nlohmann::json(delay);
  if (told.loss_floor) document["loss_floor"] = *told.loss_floor;
  return document;
}

void print_text(const BenchPsArguments& arguments, const plan::PolicyExperiment& experiment,
                const Told& told) {
  double per_update = 1 / static_cast<double>(told.updates);
  fmt::print("{} with {} workers, K = {}, on the {} clock\n", arguments.policy, *arguments.workers,
             plan::effective_k(experiment.policy), arguments.clock);
  fmt::print("  time per update     {}\n", format_duration(told.seconds_per_update));
  fmt::print("  staleness           {:.4g} on average, {:.1f} % fresh\n", told.mean_staleness,
             100 * told.fresh);
  fmt::print("  workers idle        {:.1f} %\n", 100 * told.idle_fraction);
  fmt::print("  per update          {:.4g} gradients, {:.4g} minibatches cancelled, {}\n",
             static_cast<double>(told.gradients) * per_update,
             static_cast<double>(told.cancelled) * per_update,
             format_bytes(static_cast<double>(told.bytes) * per_update));
  if (told.loss_floor) fmt::print("  loss floor          {:.6g}\n", *told.loss_floor);
}

ps::PolicyBench bench_of(const BenchPsArguments& arguments, const plan::PolicyExperiment& experiment) {
  check_range("--workers", *arguments.workers, kMostRealRanks);
  check_range("--servers", arguments.servers, kMostRealRanks);
  if (experiment.bytes > kMostRealBytes)
    throw ConfigError("--bytes {}: too large; at most {} with --clock real.", arguments.bytes,
                      format_bytes(static_cast<double>(kMostRealBytes)));
  return {experiment, static_cast<int>(arguments.servers), arguments.backend};
}

double bandwidth_of(const BenchPsArguments& arguments) {
  if (arguments.bandwidth.empty()) return 0;
  const std::optional<double> rate = parse_rate(arguments.bandwidth);
  if (!rate || *rate <= 0)
    throw ConfigError("--bandwidth {}: expected a rate such as 10gbit or 1.25GB/s.", arguments.bandwidth);
  return *rate;
}

int bench_real(const CommandLine& line, const plan::PolicyExperiment& experiment) {
  const BenchPsArguments& arguments = line.bench_ps;
  ps::PolicyBenchResult result = ps::bench_policy(bench_of(arguments, experiment));
  Told told = told_of(result);
  if (line.json) {
    nlohmann::json document = to_json(arguments, experiment, told);
    document["backend"] = arguments.backend;
    document["push_seconds"] = result.push_seconds;
    document["pull_seconds"] = result.pull_seconds;
    document["server_cpu_seconds"] = result.server_cpu_seconds;
    print_json(document);
    return 0;
  }
  print_text(arguments, experiment, told);
  fmt::print("  of a gradient       {} push, {} pull\n", format_duration(result.push_seconds),
             format_duration(result.pull_seconds));
  return 0;
}

int bench_virtual(const CommandLine& line, const plan::PolicyExperiment& experiment) {
  const BenchPsArguments& arguments = line.bench_ps;
  Stopwatch watch;
  sim::PsOutcome outcome =
      sim::simulate_ps({experiment, {}, bandwidth_of(arguments), static_cast<int>(arguments.servers)});
  log::info("{} updates, {} gradients in {}", format_count(static_cast<double>(outcome.updates)),
            format_count(static_cast<double>(outcome.gradients)), format_duration(watch.seconds()));
  if (line.json)
    print_json(to_json(arguments, experiment, told_of(outcome)));
  else
    print_text(arguments, experiment, told_of(outcome));
  return 0;
}

int bench_throughput(const CommandLine& line) {
  const BenchPsArguments& arguments = line.bench_ps;
  ps::ThroughputBench bench;
  const int64_t workers = arguments.workers.value_or(1);
  check_range("--workers", workers, kMostRealRanks);
  bench.workers = static_cast<int>(workers);
  bench.servers = static_cast<int>(arguments.servers);
  bench.backend = arguments.backend;
  bench.in_flight = static_cast<int>(arguments.in_flight);
  bench.seconds = arguments.seconds;
  check_range("--servers", arguments.servers, kMostRealRanks);
  if (arguments.in_flight != 0) check_range("--in-flight", arguments.in_flight, kMostRealRanks);
  nlohmann::json results = nlohmann::json::array();
  report::Table table({"backend", "bytes", "push+pull/s", "GB/s", "server ns/KB"});
  for (const std::string& size : split(arguments.bytes, ',')) {
    auto bytes = parse_bytes(trim(size));
    if (!bytes || *bytes < 4 || *bytes > kMostRealBytes)
      throw ConfigError("--bytes {}: not a size of at least 4 bytes. Accepted: 1K, 64K, 16MB, …", size);
    bench.bytes = static_cast<size_t>(*bytes);
    // Large values consist of many requests by themselves.
    if (arguments.in_flight == 0) bench.in_flight = *bytes <= kSmallBytes ? 8 : 1;
    ps::ThroughputResult result = ps::bench_throughput(bench);
    results.push_back({{"bytes", *bytes},
                       {"backend", bench.backend},
                       {"workers", bench.workers},
                       {"servers", bench.servers},
                       {"in_flight", bench.in_flight},
                       {"pushpull_per_s", result.pushpull_per_s},
                       {"bandwidth", result.bandwidth},
                       {"server_cpu_seconds_per_byte", result.server_cpu_seconds_per_byte}});
    table.add({bench.backend, fmt::format("{}", *bytes), fmt::format("{:.0f}", result.pushpull_per_s),
               fmt::format("{:.3f}", result.bandwidth / 1e9),
               fmt::format("{:.0f}", result.server_cpu_seconds_per_byte * 1e12)});
  }
  if (line.json)
    print_json({{"results", results}});
  else
    fmt::print("{}",
               table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  return 0;
}

}  // namespace

int bench_ps(const CommandLine& line) {
  const BenchPsArguments& arguments = line.bench_ps;
  if (arguments.clock != "real" && arguments.clock != "virtual")
    throw ConfigError("--clock {}: unknown. Accepted: real virtual.", arguments.clock);
  if (arguments.backend != "shm" && arguments.backend != "tcp")
    throw ConfigError("--backend {}: unknown. Accepted: shm tcp.", arguments.backend);
  if (arguments.throughput) return bench_throughput(line);
  plan::PolicyExperiment experiment = experiment_of(arguments);
  return arguments.clock == "real" ? bench_real(line, experiment) : bench_virtual(line, experiment);
}

}  // namespace yoke::cli
