#include "cli/lab_downpour_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cli/lab_job.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/metrics/jsonl.h"
#include "yoke/report/accuracy_race.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

using Settings = std::vector<std::pair<std::string, std::string>>;

// Without FILE.
constexpr const char* kDownpourRecipe = R"([model]
name = "lenet"

[data]
name = "synthetic"
samples = {}
batch_size = 64

[train]
optimizer = "sgd"
lr = 0.1
threads = 1
)";
constexpr int kDownpourSamples = 8000, kDownpourQuickSamples = 512;

struct Method {
  std::string name;
  Settings settings;
  bool distributed = true;
};

// Keys that only some methods use: others would refuse them.
bool is_of(const std::string& key, const Method& method) {
  const bool lbfgs = key.starts_with("sandblaster.") || key == "train.history" ||
                     key == "train.inner_steps" || key == "train.line_search";
  if (lbfgs) return method.name == "sandblaster";
  const bool downpour = key == "ps.n_push" || key == "ps.n_fetch" || key == "ps.warm_start";
  if (downpour) return method.name.starts_with("downpour");
  return method.distributed || !(key.starts_with("ps.") || key.starts_with("slowdown."));
}

struct DownpourLab {
  const CommandLine& line;
  const DownpourLabArguments& arguments;
  const RunConfig& config;  // as the file and the overrides say
  fs::path out;

  std::vector<Method> known() const {
    auto number = [](double value) { return fmt::format("{}", value); };
    const std::string lr = number(config.train.optimizer.lr);
    const int64_t batch = arguments.lbfgs_batch > 0 ? arguments.lbfgs_batch : config.data.batch_size * 8;
    return {
        {"sgd",
         {{"train.optimizer", "sgd"}, {"train.lr", lr}, {"train.momentum", "0"}},
         /*distributed=*/false},
        {"downpour",
         {{"train.optimizer", "sgd"}, {"train.lr", lr}, {"train.momentum", "0"}, {"ps.policy", "async"}}},
        {"downpour_adagrad",
         {{"train.optimizer", "adagrad"},
          {"train.lr", number(arguments.adagrad_lr)},
          {"ps.policy", "async"}}},
        {"sandblaster",
         {{"train.optimizer", "lbfgs"},
          {"train.lr", "1"},
          {"train.line_search", "strong_wolfe"},
          {"data.batch_size", fmt::format("{}", batch)}}},
    };
  }

  std::vector<Method> methods() const {
    const std::vector<Method> all = known();
    if (arguments.methods == "all") return all;
    std::vector<std::string> names;
    for (const Method& method : all) names.push_back(method.name);
    std::vector<Method> chosen;
    for (const std::string& name : split(arguments.methods, ',')) {
      auto found = std::find_if(all.begin(), all.end(), [&](const Method& one) { return one.name == name; });
      if (found == all.end())
        throw ConfigError("--methods {}: there is no '{}'. Accepted: all, or some of {}.", arguments.methods,
                          name, join(names));
      chosen.push_back(*found);
    }
    if (chosen.empty()) throw ConfigError("--methods: none. Accepted: all, or some of {}.", join(names));
    return chosen;
  }

  // Throws ConfigError where the ranks would refuse it.
  LabJob job_of(const Method& method) const {
    std::vector<std::string> words = {"train",
                                      arguments.file,
                                      "--resume",
                                      "never",
                                      "-q",
                                      "--nproc",
                                      fmt::format("{}", method.distributed ? arguments.workers : 1)};
    auto set = [&](const std::string& key, const std::string& value) {
      words.push_back("--" + key);
      words.push_back(value);
    };
    for (const config::Override& change : line.overrides)
      if (is_of(change.key, method)) set(change.key, change.value);
    if (method.distributed) {
      set("parallel.sync", "ps");
      set("ps.servers", fmt::format("{}", arguments.servers));
    }
    for (const auto& [key, value] : method.settings) set(key, value);
    set("out.dir", (out / method.name).string());
    set("checkpoint.every_steps", "0");
    set("train.steps", "0");
    set("train.epochs", fmt::format("{}", arguments.epochs));
    return lab_job(line, words);
  }

  report::RacedRun train(const Method& method, const LabJob& job) const {
    const fs::path records = out / method.name / "metrics.jsonl";
    fs::remove(records);
    if (int code = cluster::run_job(job.launch); code != 0)
      throw Error(static_cast<ExitCode>(code), method.name + " failed; see above");
    report::RacedRun run{method.name, {}, 0};
    for (const metrics::Record& record : metrics::read_records(records).records) {
      run.final_loss = record.loss;
      if (!record.accuracy) continue;
      run.points.push_back({record.time, *record.accuracy});
      run.by_epoch.push_back({record.epoch, *record.accuracy});
    }
    if (run.points.empty())
      throw ConfigError(
          "{}: no accuracy was measured. Set train.evaluate = true, and data with a test set and classes.",
          method.name);
    return run;
  }
};

// One worker's plain SGD, as fast as all workers together could be.
report::IdealRace ideal_of(const std::vector<report::RacedRun>& runs, int64_t workers) {
  report::IdealRace ideal;
  for (const report::RacedRun& run : runs) {
    if (run.name != "sgd") continue;
    ideal.name = fmt::format("sgd, {} times as fast", workers);
    for (const report::Point& point : run.points)
      ideal.points.push_back({point.x / static_cast<double>(workers), point.y});
  }
  return ideal;
}

nlohmann::json row_of_race(const report::RacedRun& run) {
  nlohmann::json curve = nlohmann::json::array();
  for (const report::Point& point : run.points) curve.push_back({point.x, point.y});
  nlohmann::json row = {{"method", run.name},
                        {"final_loss", run.final_loss},
                        {"accuracy", run.best()},
                        {"curve", std::move(curve)}};
  if (run.seconds_to_target) row["seconds_to_target"] = *run.seconds_to_target;
  return row;
}

report::LabTable race_table(const std::vector<report::RacedRun>& runs) {
  report::LabTable table{{"method", "time to target", "best accuracy", "final loss", "time"}, {}};
  for (const report::RacedRun& run : runs)
    table.rows.push_back({run.name,
                          run.seconds_to_target ? fmt::format("{:.2f} s", *run.seconds_to_target) : "never",
                          fmt::format("{:.2f} %", 100 * run.best()), fmt::format("{:.4f}", run.final_loss),
                          fmt::format("{:.2f} s", run.points.back().x)});
  return table;
}

}  // namespace

void run_lab_downpour(Lab& frame) {
  DownpourLabArguments arguments = frame.line.lab_downpour;
  frame.quick_default("--workers", arguments.workers, int64_t{2});
  frame.quick_default("--epochs", arguments.epochs, 1.0);
  frame.quick_default("--lbfgs-batch", arguments.lbfgs_batch, int64_t{128});  // of 512 samples
  arguments.file =
      recipe_of(frame, arguments.file,
                fmt::format(kDownpourRecipe, frame.quick ? kDownpourQuickSamples : kDownpourSamples));
  Configuration configuration;
  configuration.load(arguments.file, frame.line.overrides);
  const DownpourLab lab{frame.line, arguments, configuration.values, frame.out};
  const std::vector<Method> methods = lab.methods();
  std::vector<LabJob> jobs;  // all are checked before the first starts
  for (const Method& method : methods) jobs.push_back(lab.job_of(method));
  std::vector<report::RacedRun> runs;
  frame.expect(methods.size());
  for (size_t i = 0; i < methods.size(); ++i)
    frame.part(methods[i].name, [&] { runs.push_back(lab.train(methods[i], jobs[i])); });
  double target = arguments.target_accuracy;
  if (target <= 0) {
    target = 1;
    for (const report::RacedRun& run : runs) target = std::min(target, run.best());
  }
  report::find_target(runs, target);
  for (const report::RacedRun& run : runs) frame.result(row_of_race(run));
  frame.document["target_accuracy"] = target;
  frame.page.title = "Downpour and Sandblaster: " + configuration.values.model.name;
  frame.page.about =
      fmt::format("{} and {}, sgd on one; {}", counted(fmt::format("{}", arguments.workers), "worker"),
                  counted(fmt::format("{}", arguments.servers), "server"),
                  counted(fmt::format("{}", arguments.epochs), "epoch"));
  report::add_accuracy_race(frame.page, target, runs, ideal_of(runs, arguments.workers));
  frame.print(race_table(runs), fmt::format("target: an accuracy of {:.2f} %", 100 * target));
}

}  // namespace yoke::cli
