// Every method trains on this machine; losses are those of the runs. The link is modelled: the time of a step
// is the measured computation and what the rounds take on a virtual clock (sim/averaging.h). So the link may
// be any, and a laptop gives the same picture as a cluster.
#include "cli/lab_averaging_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/lab_job.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/metrics/jsonl.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/plan/averaging/graph.h"
#include "yoke/report/averaging.h"
#include "yoke/sim/averaging.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAveragedRecords = 8;
constexpr double kAllReachIt = 1.001;  // times the worst final loss: the target when none is given
constexpr int64_t kRecordsOfRun = 200;
constexpr int64_t kStreamedParts = 4;

// Without FILE: a gradient of LeNet takes longer on the default link than a step of kRecipeCompute.
constexpr const char* kAveragingRecipe = R"([model]
name = "lenet"

[data]
name = "synthetic"
samples = 4000
batch_size = 32

[train]
steps = 240
optimizer = "sgd"
lr = 0.04
momentum = 0.9
schedule = "cosine"
threads = 1
)";
constexpr const char* kRecipeCompute = "20ms";

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Way {
  std::string name;
  Settings settings;
};

std::vector<Way> all_ways(int64_t every, int64_t steps) {
  auto text = [](int64_t number) { return fmt::format("{}", number); };
  const int64_t parts = std::min(kStreamedParts, every);
  std::vector<Way> ways = {
      {"ddp", {{"parallel.sync", "allreduce"}}},
      {"local", {{"average.method", "local"}, {"average.every", text(every)}}},
      {"end", {{"average.method", "end"}}},
      {"post_local",
       {{"average.method", "post_local"},
        {"average.every", text(every)},
        {"average.start", text(steps / 4)}}},
      {"diloco", {{"average.method", "diloco"}, {"average.every", text(every)}}},
      {"diloco_streaming",
       {{"average.method", "diloco"},
        {"average.every", text(every)},
        {"average.fragments", text(parts)},
        {"average.overlap", text(std::max<int64_t>(1, every / parts))}}},
  };
  for (const std::string& graph : plan::mixing_graph_names())
    if (graph != "full")  // that is local
      ways.push_back({"gossip_" + graph,
                      {{"average.method", "gossip"}, {"average.graph", graph}, {"average.overlap", "1"}}});
  ways.push_back({"async_gossip", {{"average.method", "async_gossip"}, {"average.every", text(every)}}});
  for (Way& way : ways)
    if (way.name != "ddp") way.settings.emplace_back("parallel.sync", "average");
  return ways;
}

struct AveragingLab {
  const CommandLine& line;
  const AveragingLabArguments& arguments;
  const RunConfig& config;  // as the file and the overrides say
  fs::path out;
  sim::LinkSpeed link;

  int64_t steps() const { return arguments.steps > 0 ? arguments.steps : config.train.loop.steps; }

  std::vector<Way> ways() const {
    std::vector<Way> known = all_ways(arguments.every, steps()), chosen;
    std::vector<std::string> names;
    for (const Way& way : known) names.push_back(way.name);
    if (arguments.methods == "all") {
      for (Way& way : known) {
        const bool gossip = way.name.starts_with("gossip_");
        try {
          if (gossip) plan::mixing_graph(way.name.substr(7), static_cast<int>(arguments.workers));
          if (way.name == "async_gossip" && config.train.compute.device != "cpu")
            throw ConfigError("pairs average in host memory.");
          chosen.push_back(std::move(way));
        } catch (const ConfigError& error) {
          log::info("lab averaging: without {}: {}", way.name, error.what());
        }
      }
      return chosen;
    }
    for (const std::string& name : split(arguments.methods, ',')) {
      auto found = std::find_if(known.begin(), known.end(), [&](const Way& way) { return way.name == name; });
      if (found == known.end())
        throw ConfigError("--methods {}: there is no '{}'. Accepted: all, or some of {}.", arguments.methods,
                          name, join(names));
      chosen.push_back(*found);
    }
    if (chosen.empty()) throw ConfigError("--methods: none. Accepted: all, or some of {}.", join(names));
    return chosen;
  }

  // Throws ConfigError where the ranks would refuse it.
  LabJob job_of(const Way& way) const {
    std::vector<std::string> words = {
        "train", arguments.file, "--resume", "never", "-q", "--nproc", fmt::format("{}", arguments.workers)};
    auto set = [&](const std::string& key, const std::string& value) {
      words.push_back("--" + key);
      words.push_back(value);
    };
    for (const config::Override& change : line.overrides)
      if (way.name.starts_with("diloco") || !change.key.starts_with("average."))
        set(change.key, change.value);
    for (const auto& [key, value] : way.settings) set(key, value);
    set("out.dir", (out / way.name).string());
    set("checkpoint.every_steps", "0");
    set("train.steps", fmt::format("{}", steps()));
    set("out.log_every", fmt::format("{}", std::max<int64_t>(1, steps() / kRecordsOfRun)));
    return lab_job(line, words);
  }

  sim::AveragingRun simulated(const Way& way, const RunConfig& own, double compute) const {
    sim::AveragingRun run;
    run.ranks = static_cast<int>(arguments.workers);
    run.model_bytes = models::outline_of(config.model).parameters * sizeof(float);
    run.compute_seconds = compute;
    if (way.name == "ddp") {
      run.rounds.never = true;
      run.gradients = true;
      run.average_at_end = false;
      return run;
    }
    run.rounds = parallel::rounds_of(own.average);
    run.gradients = own.average.method == "post_local";
    if (own.average.method == "async_gossip") run.pairs_every = own.average.every;
    if (own.average.method == "gossip")
      run.neighbours = plan::mixing_graph(own.average.graph, run.ranks).degree();
    return run;
  }

  std::vector<metrics::Record> train(const Way& way, const LabJob& job) const {
    fs::remove(out / way.name / "metrics.jsonl");
    if (int code = cluster::run_job(job.launch); code != 0)
      throw Error(static_cast<ExitCode>(code), way.name + " failed; see above");
    return metrics::read_records(out / way.name / "metrics.jsonl").records;
  }

  // Losses with more pairs than the link can carry would not be those of a run on it.
  bool fits(const Way& way, const RunConfig& own, double compute) const {
    const sim::AveragingRun run = simulated(way, own, compute);
    const double load = run.pairs_every > 0 ? sim::pairs_load(run, link) : 0;
    if (load > 1)
      log::warn(
          "lab averaging: without {}: its pairs would keep a link of {} busy for {:.1f} times as long as "
          "the steps between them take. --every {} lets it take part.",
          way.name, arguments.bandwidth, load,
          static_cast<int64_t>(std::ceil(load * static_cast<double>(run.pairs_every))));
    return load <= 1;
  }

  ConfigError none_fits() const {
    return ConfigError("--methods {}: a link of {} carries none of them. Raise --every or --bandwidth.",
                       arguments.methods, arguments.bandwidth);
  }

  // The losses of ddp as if a step took `compute` and nothing else; empty without ddp.
  static std::vector<report::AveragedRun::Step> nothing_sent(const std::vector<metrics::Record>& records,
                                                             const report::AveragedRun& ddp, double compute) {
    std::vector<report::AveragedRun::Step> ideal;
    for (size_t i = 0; i < std::min(records.size(), ddp.steps.size()); ++i)
      ideal.push_back({compute * static_cast<double>(records[i].step), 0, ddp.steps[i].loss});
    return ideal;
  }

  report::AveragedRun on_link(const Way& way, const RunConfig& own,
                              const std::vector<metrics::Record>& records, double compute) const {
    sim::AveragingTrace trace = sim::simulate_averaging(simulated(way, own, compute), link, steps());
    report::AveragedRun run;
    run.name = way.name;
    for (const metrics::Record& record : records) {
      const auto at = static_cast<size_t>(std::clamp<int64_t>(record.step, 1, steps()) - 1);
      run.steps.push_back({trace.seconds[at], trace.bytes[at], record.loss});
      if (record.eval_loss) run.test_loss = record.eval_loss;
    }
    run.average_records(kAveragedRecords);
    if (!run.steps.empty()) run.final_loss = run.steps.back().loss;
    return run;
  }
};

// Computation of a step: the median of all runs, whatever they waited for.
double measured_compute(const std::vector<std::vector<metrics::Record>>& runs) {
  std::vector<double> seconds;
  for (const auto& records : runs)
    for (const metrics::Record& record : records)
      if (record.split) seconds.push_back(record.split->forward + record.split->backward);
  if (seconds.empty()) return 0;
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

void find_target(std::vector<report::AveragedRun>& runs, double target) {
  for (report::AveragedRun& run : runs)
    for (const report::AveragedRun::Step& step : run.steps)
      if (!run.seconds_to_target && step.loss <= target) {
        run.seconds_to_target = step.seconds;
        run.bytes_to_target = step.bytes;
      }
}

nlohmann::json row_of(const report::AveragedRun& run) {
  nlohmann::json curve = nlohmann::json::array();
  for (const report::AveragedRun::Step& step : run.steps)
    curve.push_back({step.seconds, step.bytes, step.loss});
  nlohmann::json row = {{"method", run.name},
                        {"final_loss", run.final_loss},
                        {"seconds", run.steps.empty() ? 0 : run.steps.back().seconds},
                        {"bytes", run.steps.empty() ? 0 : run.steps.back().bytes},
                        {"curve", std::move(curve)}};
  if (run.test_loss) row["test_loss"] = *run.test_loss;
  if (run.seconds_to_target) row["seconds_to_target"] = *run.seconds_to_target;
  if (run.bytes_to_target) row["bytes_to_target"] = *run.bytes_to_target;
  return row;
}

report::LabTable runs_table(const std::vector<report::AveragedRun>& runs) {
  report::LabTable table{
      {"method", "time to target", "sent to target", "time", "sent", "final loss", "test loss"}, {}};
  for (const report::AveragedRun& run : runs)
    table.rows.push_back(
        {run.name, run.seconds_to_target ? fmt::format("{:.2f} s", *run.seconds_to_target) : "never",
         run.bytes_to_target ? format_bytes(*run.bytes_to_target) : "never",
         fmt::format("{:.2f} s", run.steps.empty() ? 0 : run.steps.back().seconds),
         format_bytes(run.steps.empty() ? 0 : run.steps.back().bytes), fmt::format("{:.4f}", run.final_loss),
         run.test_loss ? fmt::format("{:.4f}", *run.test_loss) : ""});
  return table;
}

sim::LinkSpeed link_of(const AveragingLabArguments& arguments) {
  const std::optional<double> rate = parse_rate(arguments.bandwidth),
                              delay = parse_duration(arguments.latency);
  const bool has_unit = arguments.bandwidth.find_first_of("bB") != std::string::npos;
  if (!rate || *rate <= 0 || !has_unit)
    throw ConfigError("--bandwidth {}: expected a rate such as 100mbit or 12.5MB/s.", arguments.bandwidth);
  if (!delay) throw ConfigError("--latency {}: expected a time such as 1ms.", arguments.latency);
  return {*rate, *delay};
}

}  // namespace

void run_lab_averaging(Lab& frame) {
  AveragingLabArguments arguments = frame.line.lab_averaging;
  frame.quick_default("--workers", arguments.workers, int64_t{2});
  frame.quick_default("--steps", arguments.steps, int64_t{12});
  frame.quick_default("--every", arguments.every, int64_t{4});
  frame.quick_default("--methods", arguments.methods, std::string("ddp,local,diloco"));
  if (arguments.file.empty() && !frame.was_given("--compute")) arguments.compute = kRecipeCompute;
  arguments.file = recipe_of(frame, arguments.file, kAveragingRecipe);
  Configuration configuration;
  configuration.load(arguments.file, frame.line.overrides);
  AveragingLab lab{frame.line, arguments, configuration.values, frame.out, link_of(arguments)};
  if (lab.steps() == 0)
    throw ConfigError("train.steps = 0: give --steps N, the number of steps of each run.");
  const std::optional<double> given = parse_duration(arguments.compute);
  if (!arguments.compute.empty() && given.value_or(0) <= 0)
    throw ConfigError("--compute {}: expected a time such as 20ms.", arguments.compute);
  const std::vector<Way> ways = lab.ways();
  std::vector<LabJob> jobs;  // all are checked before the first starts
  for (const Way& way : ways) jobs.push_back(lab.job_of(way));
  std::vector<size_t> chosen, trained;  // indices of ways
  for (size_t i = 0; i < ways.size(); ++i)
    if (!given || lab.fits(ways[i], jobs[i].config, *given)) chosen.push_back(i);
  if (chosen.empty()) throw lab.none_fits();
  std::vector<std::vector<metrics::Record>> records;
  frame.expect(chosen.size());
  for (size_t i : chosen)
    if (frame.part(ways[i].name, [&] { records.push_back(lab.train(ways[i], jobs[i])); }))
      trained.push_back(i);
  const double compute = given ? *given : measured_compute(records);
  std::vector<report::AveragedRun> runs;
  std::vector<report::AveragedRun::Step> ideal;
  for (size_t i = 0; i < trained.size(); ++i) {
    const Way& way = ways[trained[i]];
    if (!given && !lab.fits(way, jobs[trained[i]].config, compute)) continue;
    runs.push_back(lab.on_link(way, jobs[trained[i]].config, records[i], compute));
    if (way.name == "ddp") ideal = AveragingLab::nothing_sent(records[i], runs.back(), compute);
  }
  if (runs.empty() && !trained.empty()) throw lab.none_fits();
  double target = arguments.target_loss;
  if (target <= 0)
    for (const report::AveragedRun& run : runs) target = std::max(target, run.final_loss * kAllReachIt);
  find_target(runs, target);
  for (const report::AveragedRun& run : runs) frame.result(row_of(run));
  frame.document["target_loss"] = target;
  frame.document["compute_seconds"] = compute;
  frame.document["link"] = "modelled";
  frame.document["bandwidth"] = lab.link.bytes_per_second;
  frame.page.title = "Averaging: " + configuration.values.model.name;
  frame.page.about = fmt::format(
      "{} ranks, {} steps, a round every {} steps; a link of {} and {} (modelled), {} of computation a step",
      arguments.workers, lab.steps(), arguments.every, arguments.bandwidth, arguments.latency,
      format_duration(compute));
  report::add_averaging(frame.page, target, runs, ideal);
  frame.print(runs_table(runs), fmt::format("target: a loss of {:.4g}; the link is modelled", target));
}

}  // namespace yoke::cli
