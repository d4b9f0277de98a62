#include "cli/lab_stragglers_trained.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/lab_job.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/text.h"
#include "yoke/metrics/jsonl.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/report/comparison.h"
#include "yoke/report/loss_curve.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kQuickSteps = 20;
constexpr int64_t kRecords = 80;         // of each run, for its curves: single minibatches are noisy
constexpr double kFloorShare = 0.25;     // of a run, at its end: its mean loss is the floor
constexpr double kReachedByAll = 1.001;  // times the highest floor: the default target

struct RuleTraining {
  const CommandLine& line;
  const LabArguments& arguments;
  RunConfig& config;  // as given by the file and the overrides
  fs::path out;

  int64_t k_of(const std::string& rule) const {
    if (plan::traits_of(plan::parse_rule(rule)).k != plan::RuleTraits::kGiven) return 0;
    return arguments.k > 0 ? arguments.k : std::max<int64_t>(1, arguments.workers / 2);
  }

  // Every rule gets as many minibatches as `sync` with train.steps.
  int64_t updates_of(const std::string& rule) const {
    plan::PolicyOptions policy;
    policy.rule = plan::parse_rule(rule);
    policy.workers = static_cast<int>(arguments.workers);
    policy.k = k_of(rule);
    int64_t minibatches = config.train.loop.steps * arguments.workers, k = plan::effective_k(policy);
    return (minibatches + k - 1) / k;
  }

  // Throws ConfigError if the ranks would refuse it.
  cluster::LaunchOptions job_of(const std::string& rule, const std::string& law,
                                const fs::path& folder) const {
    std::vector<std::string> words = {
        "train", arguments.file, "--resume", "never", "-q", "--nproc", fmt::format("{}", arguments.workers)};
    auto set = [&](const std::string& key, const std::string& value) {
      words.push_back("--" + key);
      words.push_back(value);
    };
    for (const config::Override& change : line.overrides) set(change.key, change.value);
    set("parallel.sync", "ps");
    set("ps.policy", rule);
    set("ps.servers", fmt::format("{}", arguments.servers));
    if (k_of(rule) > 0) set("ps.k", fmt::format("{}", k_of(rule)));
    if (plan::traits_of(plan::parse_rule(rule)).gated) set("ps.max_delay", arguments.max_delay);
    set("slowdown.law", law);
    if (law != "none") set("slowdown.workers", arguments.delay_workers);
    set("out.dir", folder.string());
    set("checkpoint.every_steps", "0");
    if (config.train.loop.steps > 0) {
      set("train.steps", fmt::format("{}", updates_of(rule)));
      set("out.log_every", fmt::format("{}", std::max<int64_t>(1, updates_of(rule) / kRecords)));
    }
    return lab_job(line, words).launch;
  }

  report::ComparedRun train(const std::string& rule, const std::string& law, const fs::path& folder) const {
    cluster::LaunchOptions job = job_of(rule, law, folder);
    fs::remove(folder / "metrics.jsonl");
    fs::remove(folder / "ps.json");
    if (int code = cluster::run_job(job); code != 0)
      throw Error(static_cast<ExitCode>(code), rule + " failed; see above");
    return read(rule, folder);
  }

  static report::ComparedRun read(const std::string& rule, const fs::path& folder) {
    report::ComparedRun run;
    run.name = rule;
    run.records = metrics::read_records(folder / "metrics.jsonl").records;
    const std::string file = (folder / "ps.json").string();
    nlohmann::json counts = parse_json(read_file(file), file);
    try {
      run.k = counts.at("k");
      run.staleness = counts.at("staleness").at("histogram").get<std::vector<int64_t>>();
      run.staleness_mean = counts.at("staleness").at("mean");
      run.idle_fraction = counts.at("idle_fraction");
      double seconds = counts.at("seconds");
      run.updates_per_s = seconds > 0 ? counts.at("updates").get<double>() / seconds : 0;
    } catch (const nlohmann::json::exception& error) {
      throw ConfigError("{}: {}. Is it what this version's parameter servers write?", file,
                        json_problem(error));
    }
    // The first worker may have few records: it may be the straggler.
    std::vector<report::LossPoint> curve = report::coarser(report::loss_curve_of(counts), kRecords);
    if (!curve.empty()) run.records = report::records_of(curve);
    if (!run.records.empty()) run.final_loss = run.records.back().loss;
    run.loss_floor = floor_of(run.records);
    return run;
  }

  static double floor_of(const std::vector<metrics::Record>& records) {
    const auto count = static_cast<size_t>(std::ceil(kFloorShare * static_cast<double>(records.size())));
    double sum = 0;
    for (size_t i = records.size() - count; i < records.size(); ++i) sum += records[i].loss;
    return count > 0 ? sum / static_cast<double>(count) : 0;
  }
};

// Of labels of which a share is drawn at random: no model has a lower loss on new samples. 0: unknown.
double entropy_of_labels(const RunConfig& config) {
  const double noise = config.data.noise;
  if (config.data.name != "synthetic" || config.model.name != "mlp" || config.model.sizes.empty()) return 0;
  if (noise <= 0) return 0;
  const auto classes = static_cast<double>(config.model.sizes.back());
  const double other = noise / classes, own = 1 - noise + other;
  return -own * std::log(own) - (classes - 1) * other * std::log(other);
}

nlohmann::json row_of_rule(const report::ComparedRun& run) {
  nlohmann::json row = {{"policy", run.name},
                        {"k", run.k},
                        {"final_loss", run.final_loss},
                        {"loss_floor", run.loss_floor},
                        {"staleness_mean", run.staleness_mean},
                        {"updates_per_s", run.updates_per_s},
                        {"idle_fraction", run.idle_fraction}};
  if (run.seconds_to_target) row["seconds_to_target"] = *run.seconds_to_target;
  if (run.rate_kept) row["rate_kept"] = *run.rate_kept;
  return row;
}

report::LabTable table_of(const std::vector<report::ComparedRun>& runs) {
  report::LabTable table{{"rule", "K", "to target", "floor", "updates/s", "staleness", "idle", "rate kept"},
                         {}};
  for (const report::ComparedRun& run : runs)
    table.rows.push_back({run.name, fmt::format("{}", run.k),
                          run.seconds_to_target ? fmt::format("{:.2f} s", *run.seconds_to_target) : "never",
                          fmt::format("{:.4f}", run.loss_floor), fmt::format("{:.1f}", run.updates_per_s),
                          fmt::format("{:.3f}", run.staleness_mean),
                          fmt::format("{:.1f} %", 100 * run.idle_fraction),
                          run.rate_kept ? fmt::format("{:.0f} %", 100 * *run.rate_kept) : ""});
  return table;
}

}  // namespace

std::vector<std::string> chosen_rules(const std::string& policies) {
  if (policies == "all") return plan::rule_names();
  std::vector<std::string> names = split(policies, ',');
  for (const std::string& name : names) plan::parse_rule(name);
  if (names.empty())
    throw ConfigError("--policies: none. Accepted: all, or some of {}.", join(plan::rule_names()));
  return names;
}

void train_under_rules(Lab& frame, const LabArguments& arguments) {
  Configuration configuration;
  configuration.load(arguments.file, frame.line.overrides);
  RunConfig& config = configuration.values;
  if (frame.quick && config.train.loop.steps == 0) config.train.loop.steps = kQuickSteps;
  const RuleTraining lab{frame.line, arguments, config, frame.out};
  const std::vector<std::string> rules = chosen_rules(arguments.policies);
  for (const std::string& rule : rules) lab.job_of(rule, arguments.delay, lab.out / rule);
  std::vector<report::ComparedRun> runs;
  for (const std::string& rule : rules) {
    const bool trained = frame.part(fmt::format("{} with {} workers", rule, arguments.workers), [&] {
      runs.push_back(lab.train(rule, arguments.delay, lab.out / rule));
    });
    if (!arguments.fault_free) continue;
    frame.part(rule + " without delays", [&] {
      const double free_rate = lab.train(rule, "none", lab.out / (rule + "_free")).updates_per_s;
      if (trained && free_rate > 0) runs.back().rate_kept = runs.back().updates_per_s / free_rate;
    });
  }
  double target = arguments.target_loss;
  if (target <= 0)
    for (const report::ComparedRun& run : runs) target = std::max(target, run.loss_floor * kReachedByAll);
  for (report::ComparedRun& run : runs) {
    run.seconds_to_target = report::seconds_to(run.records, target);
    frame.result(row_of_rule(run));
  }
  frame.document["target_loss"] = target;
  frame.page.title = "Stragglers: " + config.model.name;
  frame.page.about =
      fmt::format("{}, {}, delay {} on {}", counted(fmt::format("{}", arguments.workers), "worker"),
                  counted(fmt::format("{}", arguments.servers), "server"), arguments.delay,
                  arguments.delay_workers.empty() ? "all" : arguments.delay_workers);
  const double entropy = entropy_of_labels(config);
  if (entropy > 0) frame.document["label_entropy"] = entropy;
  report::add_comparison(frame.page, target, runs, entropy);
  frame.print(table_of(runs), fmt::format("target: a loss of {:.4g}", target));
}

}  // namespace yoke::cli
