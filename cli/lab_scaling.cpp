#include "cli/lab_scaling.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/bench_scaling_command.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kScalingOptions = {
    {"--model", "lenet", "mlp", "model"},
    {"--ways", "all", "ddp,ps,pipeline,tensor", "of ddp zero1 zero2 zero3 ps pipeline tensor; all that suit"},
    {"--nproc", "1,2,4", "1,2", "numbers of workers"},
    {"--batch", "64", "32", "samples of a worker (weak), of all together (strong)"},
    {"--steps", "30", "3", "measured, after a warm-up"},
    {"--threads", "1", "1", "of each worker"},
};

namespace {

const char* const kWays[] = {"ddp", "zero1", "zero2", "zero3", "ps", "pipeline", "tensor"};

// Keys of each way for n workers.
using Keys = std::vector<std::pair<std::string, std::string>>;
Keys keys_of_way(const std::string& way, int workers) {
  const std::string n = fmt::format("{}", workers);
  if (way.starts_with("zero")) return {{"parallel.zero", way.substr(4)}};
  if (way == "ps") return {{"parallel.sync", "ps"}, {"ps.policy", "sync"}};
  if (way == "pipeline" || way == "tensor") return {{"parallel." + way, n}};
  return {};
}

// A pipeline or a tensor group is one replica, which takes the batches of all its workers.
bool is_one_replica(const std::string& way) {
  return way == "pipeline" || way == "tensor";
}

// Servers do not move in lockstep with a benchmark: their way trains on synthetic data.
constexpr const char* kServedRecipe = R"([data]
name = "synthetic"

[train]
lr = 0.001
evaluate = false

[out]
log_every = 1
)";
constexpr int kServedWarmUp = 3;  // steps

class ScalingLab {
 public:
  explicit ScalingLab(Lab& lab)
      : lab_(lab),
        model_(lab.values.text("--model")),
        sizes_(lab.values.integers("--nproc", 1, 64)),
        batch_(lab.values.integer("--batch", 1, 1 << 20)) {
    std::sort(sizes_.begin(), sizes_.end());
    sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
    if (sizes_.front() != 1) sizes_.insert(sizes_.begin(), 1);
    choose();
    for (const std::string& way : ways_) check(way);
  }

  void run() {
    lab_.page.title = "Scaling: " + model_;
    lab_.page.about = fmt::format(
        "{} samples per worker (weak) or in all (strong), {}, {} per worker, on this "
        "machine. "
        "Workers beyond the cores share them: their ideal is the dashed line only while each has a core.",
        batch_, counted(lab_.values.text("--steps"), "step"),
        counted(lab_.values.text("--threads"), "thread"));
    size_t parts = 0;
    for (const std::string& way : ways_)
      for (int workers : sizes_)
        for (bool strong : {false, true}) parts += measures(way, workers, strong) ? 1 : 0;
    lab_.expect(parts);
    for (bool strong : {false, true})
      for (const std::string& way : ways_)
        for (int workers : sizes_)
          if (measures(way, workers, strong))
            lab_.part(fmt::format("{}, {} worker{}, {}", way, workers, workers == 1 ? "" : "s",
                                  strong ? "strong" : "weak"),
                      [&] { measure(way, workers, strong); });
    lab_.page.section("Speed-up and efficiency");
    lab_.page.add({"weak", "Weak scaling", speed_up(/*strong=*/false),
                   "Samples per second relative to one worker; every worker has its own batch."});
    lab_.page.add({"strong", "Strong scaling", speed_up(/*strong=*/true),
                   "The same number of samples in a step, divided among the workers."});
    lab_.page.add({"efficiency_weak", "Efficiency, weak scaling", efficiency(/*strong=*/false),
                   "Speed-up divided by the number of workers. Dashed: nothing is lost."});
    lab_.page.add({"efficiency_strong", "Efficiency, strong scaling", efficiency(/*strong=*/true),
                   "The same for one batch that is divided."});
    lab_.page.section("Where the time goes");
    lab_.page.add(
        {"time", "A step, weak scaling", stacked(),
         "Compute: the step of a worker that does not communicate; in a pipeline the passes and the "
         "update of a stage, in the mean over the stages. Communication: what a step waits for it. "
         "Waiting: for slower workers; in a pipeline bubbles and messages, which are not separated. "
         "Not divided: with tensor parallelism computing and communication are not separated.",
         /*wide=*/true});
    table();
  }

 private:
  // One worker alone is the same for every way, and for strong and weak scaling: measured once.
  bool measures(const std::string& way, int workers, bool strong) const {
    if (workers == 1) return way == ways_.front() && !strong;
    return !strong || is_one_replica(way) || batch_ % workers == 0;
  }

  // Throws ConfigError for what the ranks would refuse.
  void check(const std::string& way) {
    for (int workers : sizes_)
      for (bool strong : {false, true}) {
        if (!measures(way, workers, strong)) continue;
        if (is_served(way, workers))
          add_served(workers, strong);
        else
          check_scaling(line_for(way, workers), cell_for(way, workers, strong), workers);
      }
  }

  // `all`: those that suit the model.
  void choose() {
    std::string names;
    for (const char* way : kWays) names += std::string(" ") + way;
    for (const std::string& way : lab_.values.words("--ways")) {
      if (way != "all" && std::find(std::begin(kWays), std::end(kWays), way) == std::end(kWays))
        throw ConfigError("--ways {}: unknown. Accepted: all{}.", way, names);
      if (way != "all") ways_.push_back(way);
    }
    if (!ways_.empty()) return;
    for (const char* way : kWays) {
      ways_.emplace_back(way);
      try {
        if (ways_.size() > 1) check(way);  // what the first cannot, none can
      } catch (const ConfigError& error) {
        ways_.pop_back();
        log::info("lab scaling: without {}: {}", way, error.what());
      }
    }
  }

  static bool is_served(const std::string& way, int workers) { return way == "ps" && workers > 1; }

  void add_served(int workers, bool strong) {
    const std::string file = recipe_of(lab_, "", kServedRecipe);
    const int batch = strong ? batch_ / workers : batch_;
    const int steps = kServedWarmUp + lab_.values.integer("--steps", 1, 1'000'000);
    LabTraining::Settings settings = keys_of_way("ps", workers);
    settings.insert(settings.end(), {{"model.name", model_},
                                     {"data.batch_size", fmt::format("{}", batch)},
                                     {"data.samples", fmt::format("{}", batch * workers * 4)},
                                     {"train.steps", fmt::format("{}", steps)},
                                     {"train.threads", lab_.values.text("--threads")}});
    served_.emplace(
        std::pair(workers, strong),
        LabTraining(lab_, file, fmt::format("ps_{}{}", workers, strong ? "_strong" : ""), workers, settings));
  }

  // A row as of measure_scaling(). A worker computes what one alone computes; what it pushes is a gradient.
  nlohmann::json measure_served(int workers, bool strong) const {
    const TrainedRun run = served_.at({workers, strong}).run();
    const size_t from = std::min<size_t>(kServedWarmUp, run.records.size()) - 1;
    double exposed = 0;
    const auto& first = run.records.at(from);
    const auto& last = run.records.back();
    const auto steps = static_cast<double>(last.step - first.step);
    if (steps < 1)
      throw ConfigError("ps: {} records of {} steps are too few.", run.records.size(), last.step);
    for (size_t i = from + 1; i < run.records.size(); ++i)
      if (run.records[i].split) exposed += run.records[i].split->communication;
    return {{"samples_per_s", static_cast<double>(last.samples - first.samples) / (last.time - first.time)},
            {"step_seconds", {{"median", (last.time - first.time) / steps}}},
            {"alone_step_seconds", one_step_ / (strong ? workers : 1)},
            {"compute_seconds", one_step_ / (strong ? workers : 1)},
            {"exposed_comm_seconds", exposed / static_cast<double>(run.records.size() - from - 1)},
            {"bytes_sent", run.summary.at("parameters").get<double>() * sizeof(float)}};
  }

  CommandLine line_for(const std::string& way, int workers) const {
    CommandLine line = lab_.line;
    line.bench_scaling.threads = lab_.values.integer("--threads", 0, 1024);
    line.bench_scaling.steps = lab_.values.integer("--steps", 1, 1'000'000);
    if (workers > 1)
      for (const auto& [key, value] : keys_of_way(way, workers))
        line.overrides.push_back({key, value, "--ways"});
    return line;
  }

  ScalingCell cell_for(const std::string& way, int workers, bool strong) const {
    if (is_one_replica(way)) return {model_, strong ? batch_ : batch_ * workers};
    return {model_, strong ? batch_ / workers : batch_};
  }

  void measure(const std::string& way, int workers, bool strong) {
    const nlohmann::json row = is_served(way, workers)
                                   ? measure_served(workers, strong)
                                   : measure_scaling(line_for(way, workers), cell_for(way, workers, strong),
                                                     workers, lab_.out / "measured.json");
    const double speed = row["samples_per_s"];
    const double step = row["step_seconds"]["median"];
    if (workers == 1) {
      one_ = speed;
      one_step_ = step;
    }
    const StepTime parts = step_time(row);
    nlohmann::json told = {{"way", workers == 1 ? "one worker" : way},
                           {"scaling", strong ? "strong" : "weak"},
                           {"workers", workers},
                           {"samples_per_s", speed},
                           {"step_seconds", step},
                           {"compute_seconds", parts.compute},
                           {"exposed_comm_seconds", parts.communication},
                           {"waiting_seconds", parts.waiting},
                           {"undivided_seconds", parts.undivided},
                           {"bytes_sent", row["bytes_sent"]}};
    if (one_ > 0) {
      told["speed_up"] = speed / one_;
      told["efficiency"] = speed / one_ / workers;
    }
    lab_.result(std::move(told));
  }

  // A curve for each way, which begins at one worker.
  std::vector<report::Series> of_ways(bool strong, const char* value) const {
    std::vector<report::Series> all;
    for (size_t i = 0; i < ways_.size(); ++i) {
      report::Series series{.name = ways_[i], .points = {{1, 1}}, .colour = static_cast<int>(i) + 1};
      for (const auto& row : lab_.document["results"])
        if (row["way"] == ways_[i] && row["scaling"] == (strong ? "strong" : "weak") && row.contains(value))
          series.points.push_back({row["workers"].get<double>(), row[value].get<double>()});
      if (series.points.size() > 1) all.push_back(std::move(series));
    }
    return all;
  }

  std::string speed_up(bool strong) const {
    report::LineChart chart{.title = strong ? "Strong scaling" : "Weak scaling",
                            .x_label = "workers",
                            .y_label = "speed-up",
                            .from_zero = true};
    const double most = sizes_.back();
    chart.series = of_ways(strong, "speed_up");
    chart.series.push_back({.name = "ideal", .points = {{1, 1}, {most, most}}, .colour = 6, .theory = true});
    return report::to_svg(chart);
  }

  std::string efficiency(bool strong) const {
    report::LineChart chart{.title = strong ? "Efficiency, strong scaling" : "Efficiency, weak scaling",
                            .x_label = "workers",
                            .y_label = "efficiency",
                            .unit = report::Unit::kPercent,
                            .from_zero = true};
    chart.series = of_ways(strong, "efficiency");
    chart.series.push_back({.name = "ideal",
                            .points = {{1, 1}, {static_cast<double>(sizes_.back()), 1}},
                            .colour = 6,
                            .theory = true});
    return report::to_svg(chart);
  }

  std::string stacked() const {
    report::StackedBars chart{.title = "Where the time of a step goes",
                              .x_label = "way and workers",
                              .y_label = "time per step",
                              .unit = report::Unit::kSeconds,
                              .layers = {"compute", "communication", "waiting", "not divided"}};
    double at = 0;
    for (const auto& row : lab_.document["results"]) {
      if (row["scaling"] != "weak") continue;
      const int workers = row["workers"];
      chart.bars.push_back(
          {at,
           at + 0.8,
           {row["compute_seconds"], row["exposed_comm_seconds"], row["waiting_seconds"],
            row["undivided_seconds"]},
           workers == 1 ? "1" : fmt::format("{} {}", row["way"].get<std::string>(), workers)});
      ++at;
    }
    return report::to_svg(chart);
  }

  void table() {
    report::LabTable table{{"way", "scaling", "workers", "samples/s", "speed-up", "efficiency", "sent/step"},
                           {}};
    for (const auto& row : lab_.document["results"]) {
      const bool compared = row.contains("speed_up");
      table.rows.push_back({row["way"], row["scaling"], fmt::format("{}", row["workers"].get<int>()),
                            format_short(row["samples_per_s"]),
                            compared ? fmt::format("{:.2f}", row["speed_up"].get<double>()) : "–",
                            compared ? fmt::format("{:.0f} %", 100 * row["efficiency"].get<double>()) : "–",
                            format_bytes(row["bytes_sent"])});
    }
    table.notes = {
        "Speed-up: samples per second relative to one worker. Efficiency: speed-up / workers. "
        "Weak: the samples of a step grow with the workers; strong: they stay the same. "
        "A pipeline or a tensor group is one replica, which takes the samples of all its workers."};
    lab_.show(table);
  }

  Lab& lab_;
  const std::string model_;
  std::vector<std::string> ways_;
  std::vector<int> sizes_;
  const int batch_;
  double one_ = 0, one_step_ = 0;                       // samples per second and seconds of one worker
  std::map<std::pair<int, bool>, LabTraining> served_;  // by workers, and whether they share one batch
};

}  // namespace

void run_lab_scaling(Lab& lab) {
  ScalingLab(lab).run();
}

}  // namespace yoke::cli
