#include "cli/bench_ps_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/output.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/sim/ps_simulation.h"

namespace yoke::cli {
namespace {

constexpr double kComputeSeconds = 1e-3;  // of a minibatch under laws that are no time by themselves
constexpr int64_t kMostWorkers = 1 << 16;
constexpr int64_t kMostUpdates = 1'000'000'000;
constexpr double kReportSeconds = 5;  // between lines of progress
constexpr int64_t kWarmUp = 1000;     // updates
constexpr double kRelaxations = 20;   // the quadratic forgets its start e^-20 times

void refuse_real_servers(const BenchPsArguments& arguments) {
  if (arguments.throughput)
    throw ConfigError(
        "--throughput: measures real servers, which this version does not have; only the virtual clock is "
        "available "
        "so far. `yoke bench messenger` measures the messages below them.");
  if (arguments.clock == "real")
    throw ConfigError(
        "--clock real: only the virtual clock is available so far. Use --clock virtual, which runs the same "
        "policy "
        "code.");
  if (arguments.clock != "virtual")
    throw ConfigError("--clock {}: not known. Accepted: virtual.", arguments.clock);
}

void check_range(const char* option, int64_t value, int64_t most) {
  if (value < 1 || value > most)
    throw ConfigError("{} {}: a whole number from 1 to {} is wanted.", option, value, most);
}

plan::PolicyOptions policy_of(const BenchPsArguments& arguments) {
  plan::PolicyOptions options;
  options.rule = plan::parse_rule(arguments.policy);
  options.workers = static_cast<int>(arguments.workers);
  options.k = arguments.k;
  options.max_delay = plan::parse_max_delay("--max-delay", arguments.max_delay);
  const plan::RuleTraits& traits = plan::traits_of(options.rule);
  if (traits.k == plan::RuleTraits::kGiven && options.k == 0)
    throw ConfigError("--policy {}: needs --k, the number of gradients of an update.", arguments.policy);
  if (traits.k != plan::RuleTraits::kGiven && options.k != 0)
    log::info("--k {} is not used: {} has none", options.k, arguments.policy);
  if (!traits.gated && options.max_delay != 0)
    log::info("--max-delay {} is not used: {} has none", arguments.max_delay, arguments.policy);
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

std::optional<sim::Quadratic> objective_of(const BenchPsArguments& arguments) {
  if (arguments.objective.empty()) return std::nullopt;
  if (arguments.objective != "quadratic")
    throw ConfigError("--objective {}: not known. Accepted: quadratic.", arguments.objective);
  if (!(arguments.lr > 0 && arguments.lr < 2))
    throw ConfigError("--lr {}: a number between 0 and 2 is wanted; from 2 on w^2/2 diverges.", arguments.lr);
  if (!(arguments.noise >= 0) || !std::isfinite(arguments.noise))
    throw ConfigError("--noise {}: a number of at least 0 is wanted.", arguments.noise);
  return sim::Quadratic{arguments.noise, arguments.lr};
}

// Long enough to forget the start, but no longer than what is measured.
int64_t warm_up_of(const BenchPsArguments& arguments) {
  if (arguments.objective.empty()) return kWarmUp;
  double relaxed = std::ceil(kRelaxations * static_cast<double>(arguments.workers) / arguments.lr);
  return std::max(kWarmUp, static_cast<int64_t>(std::min(relaxed, static_cast<double>(arguments.updates))));
}

sim::PsSimulation simulation_of(const BenchPsArguments& arguments) {
  check_range("--workers", arguments.workers, kMostWorkers);
  check_range("--servers", arguments.servers, kMostWorkers);
  check_range("--updates", arguments.updates, kMostUpdates);
  sim::PsSimulation simulation;
  simulation.policy = policy_of(arguments);
  simulation.law = plan::parse_delay_law(arguments.delay);
  simulation.slow =
      plan::parse_slow_workers("--delay-workers", arguments.delay_workers, simulation.policy.workers);
  simulation.compute = compute_of(arguments, simulation.law);
  simulation.updates = arguments.updates;
  simulation.seed = arguments.seed;
  simulation.objective = objective_of(arguments);
  simulation.warm_up = warm_up_of(arguments);
  auto bytes = parse_bytes(arguments.bytes);
  if (!bytes) throw ConfigError("--bytes {}: not a size. Accepted: 64K, 25MB, …", arguments.bytes);
  simulation.bytes = *bytes;
  return simulation;
}

nlohmann::json to_json(const BenchPsArguments& arguments, const sim::PsSimulation& simulation,
                       const sim::PsOutcome& outcome) {
  nlohmann::json document = {
      {"policy", arguments.policy},
      {"workers", arguments.workers},
      {"k", plan::effective_k(simulation.policy)},
      {"updates", outcome.updates},
      {"seconds_per_update", outcome.seconds_per_update()},
      {"staleness",
       {{"mean", outcome.mean_staleness}, {"fresh", outcome.fresh()}, {"histogram", outcome.staleness}}},
      {"idle_fraction", outcome.idle_fraction},
      {"cancelled", outcome.cancelled},
      {"gradients", outcome.gradients},
      {"bytes", outcome.bytes},
      {"clock", arguments.clock},
      {"delay", to_string(simulation.law)},
      {"servers", arguments.servers},
      {"bytes_per_server", outcome.bytes / arguments.servers},
      {"seed", arguments.seed}};
  int64_t delay = simulation.policy.max_delay;
  if (plan::traits_of(simulation.policy.rule).gated)
    document["max_delay"] =
        delay == plan::PolicyOptions::kUnbounded ? nlohmann::json("inf") : nlohmann::json(delay);
  if (outcome.loss_floor) document["loss_floor"] = *outcome.loss_floor;
  return document;
}

void print_text(const BenchPsArguments& arguments, const sim::PsSimulation& simulation,
                const sim::PsOutcome& outcome) {
  double per_update = 1 / static_cast<double>(outcome.updates);
  fmt::print("{} with {} workers, K = {}, on the virtual clock\n", arguments.policy, arguments.workers,
             plan::effective_k(simulation.policy));
  fmt::print("  time per update     {}\n", format_duration(outcome.seconds_per_update()));
  fmt::print("  staleness           {:.4g} on average, {:.1f} % fresh\n", outcome.mean_staleness,
             100 * outcome.fresh());
  fmt::print("  workers idle        {:.1f} %\n", 100 * outcome.idle_fraction);
  fmt::print("  of an update        {:.4g} gradients, {:.4g} minibatches cancelled, {}\n",
             static_cast<double>(outcome.gradients) * per_update,
             static_cast<double>(outcome.cancelled) * per_update,
             format_bytes(static_cast<double>(outcome.bytes) * per_update));
  if (outcome.loss_floor) fmt::print("  loss floor          {:.6g}\n", *outcome.loss_floor);
}

}  // namespace

int bench_ps(const CommandLine& line) {
  const BenchPsArguments& arguments = line.bench_ps;
  refuse_real_servers(arguments);
  sim::PsSimulation simulation = simulation_of(arguments);
  Stopwatch watch, since_report;
  simulation.progress = [&](int64_t done) {
    if (since_report.seconds() < kReportSeconds) return;
    since_report.lap();
    double share = static_cast<double>(done) / static_cast<double>(arguments.updates),
           elapsed = watch.seconds();
    log::info("{:.0f} % of the updates, {}/s, {} left", 100 * share,
              format_short(static_cast<double>(done) / elapsed),
              format_duration(elapsed * (1 - share) / share));
  };
  sim::PsOutcome outcome = sim::simulate_ps(simulation);
  log::info("{} updates, {} gradients in {}", format_count(static_cast<double>(outcome.updates)),
            format_count(static_cast<double>(outcome.gradients)), format_duration(watch.seconds()));
  if (line.json)
    print_json(to_json(arguments, simulation, outcome));
  else
    print_text(arguments, simulation, outcome);
  return 0;
}

}  // namespace yoke::cli
