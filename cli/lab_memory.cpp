// Three questions. Along a step: tensors in use, counted at every allocation of a real forward and backward
// (engine/step_anatomy.h). Time paid: rounds of all policies, one after the other in one process, so that
// other load on the machine disturbs all alike; a ratio is taken within its round. By ZeRO stage: what `yoke
// train` reports of rank 0, beside the formula of the ZeRO paper.
#include "cli/lab_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/lab_measure.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/metrics/quantiles.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kMemoryOptions = {
    {"--model", "gpt2", "gpt2", "model"},
    {"--layers", "12", "4", "gpt2: blocks"},
    {"--width", "128", "32", "gpt2: hidden size"},
    {"--seq", "128", "32", "gpt2: tokens of a sample"},
    {"--batch", "4", "4", "samples of a step"},
    {"--recompute", "none,blocks,sqrt", "none,blocks", "of none blocks sqrt; none is always measured"},
    {"--budgets", "0.5", "none", "budget: this share of what blocks saves is given back; none: without"},
    {"--ranks", "4", "2", "of the ZeRO stages; 1: without them"},
    {"--optimizer", "adamw", "adamw", "whose state is counted"},
    {"--device", "cpu", "cpu", "cpu or cuda"},
    {"--steps", "5", "2", "timed steps of each policy in a round"},
    {"--rounds", "9", "2", "of all policies, for the time paid"},
};

namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

constexpr double kBackwardPasses = 2;  // in forward passes: the share of a step that recomputation repeats
constexpr int kZeroSteps = 3;
constexpr double kLowQuartile = 0.25, kHighQuartile = 0.75;  // half of the rounds lies between
constexpr size_t kMostPoints = 600;                          // of a curve, in the results

Keys model_keys(const Lab& lab) {
  if (lab.values.text("--model") != "gpt2") {
    for (const char* flag : {"--layers", "--width", "--seq"})
      if (lab.line.lab_values.contains(flag)) throw ConfigError("{}: only gpt2 has it.", flag);
    return {};
  }
  const int width = lab.values.integer("--width", 8, 1 << 14);
  return {{"model.layers", fmt::format("{}", lab.values.integer("--layers", 1, 1000))},
          {"model.width", fmt::format("{}", width)},
          {"model.heads", fmt::format("{}", width % 32 == 0 ? width / 32 : 1)},
          {"model.vocabulary", "512"},
          {"model.positions", fmt::format("{}", lab.values.integer("--seq", 2, 1 << 16))}};
}

class MemoryLab {
 public:
  explicit MemoryLab(Lab& lab)
      : lab_(lab),
        model_(lab.values.text("--model")),
        keys_(model_keys(lab)),
        ranks_(lab.values.integer("--ranks", 1, 64)),
        policies_(lab.values.words("--recompute")) {
    if (std::find(policies_.begin(), policies_.end(), "none") == policies_.end())
      policies_.insert(policies_.begin(), "none");
    if (lab.values.text("--budgets") != "none") shares_ = lab.values.numbers("--budgets", 0, 1);
    for (const std::string& policy : policies_) check_steps(steps_with(policy));
  }

  void run() {
    lab_.page.title = "Memory of a step: " + model_;
    lab_.page.about = fmt::format(
        "Batch {}, {}, on {}. Activations: tensors that forward and backward allocate, without weights and "
        "gradients.",
        lab_.values.text("--batch"), lab_.values.text("--optimizer"), lab_.values.text("--device"));
    const int rounds = lab_.values.integer("--rounds", 1, 1000);
    lab_.expect(policies_.size() + shares_.size() + static_cast<size_t>(rounds) + (ranks_ > 1 ? 4 : 0));
    for (const std::string& policy : policies_) lab_.part("recompute " + policy, [&] { measure(policy); });
    for (double share : shares_)
      lab_.part(fmt::format("budget, {:.0f} % given back", 100 * share), [&] { measure(budget(share)); });
    for (int round = 0; round < rounds; ++round)
      lab_.part(fmt::format("time, round {} of {}", round + 1, rounds), [&] { time_all(round % 2 == 1); });
    for (nlohmann::json& row : traced_) add_times(row);
    for (const nlohmann::json& row : traced_) lab_.result(row);
    lab_.page.section("Along a step");
    lab_.page.add({"sawtooth", "Activations along a step", saw_tooth(),
                   "Forward collects, backward frees. With recomputation only the inputs of segments remain; "
                   "each segment then rises and falls a second time: the teeth. More work, a longer curve."});
    for (const auto& row : traced_) lab_.page.add(own_curve(row));
    lab_.page.add({"activations_time", "Activations against time", against_time(),
                   "The same passes against the clock, the fastest of three each. Recomputation ends later: "
                   "the blocks that run twice."});
    lab_.page.section("Time paid");
    lab_.page.add({"time", "Time of a step, relative to no recomputation", time_paid(),
                   fmt::format("Medians of {} in which all policies take turns; whiskers: half "
                               "of the rounds. Dashed: 1 + f r for a share r of blocks that run twice, if "
                               "forward is f = 1/3 of a step.",
                               counted(lab_.values.text("--rounds"), "round"))});
    policies_table();
    if (ranks_ > 1) add_zero();
  }

 private:
  StepsToMeasure steps_with(const std::string& policy) const {
    StepsToMeasure steps{.model = model_,
                         .batches = {lab_.values.integer("--batch", 1, 1 << 20)},
                         .recompute = policy,
                         .device = lab_.values.text("--device"),
                         .steps = lab_.values.integer("--steps", 1, 1'000'000),
                         .anatomy = true,
                         .keys = keys_};
    steps.keys.push_back({"train.optimizer", lab_.values.text("--optimizer")});
    return steps;
  }

  const nlohmann::json* row_of(const std::string& policy) const {
    for (const auto& row : traced_)
      if (row["recompute"] == policy) return &row;
    return nullptr;
  }

  // Between the process memory with every block recomputed and that with none.
  std::string budget(double share) const {
    const nlohmann::json *none = row_of("none"), *blocks = row_of("blocks");
    if (none == nullptr || blocks == nullptr)
      throw ConfigError("--budgets: it needs the measurements of none and blocks. Add them to --recompute.");
    const double low = (*blocks)["peak_memory_bytes"], high = (*none)["peak_memory_bytes"];
    return fmt::format("budget:{:.0f}MB", (low + share * (high - low)) / 1e6);
  }

  void measure(const std::string& policy) {
    measure_steps(lab_, steps_with(policy), [&](nlohmann::json row) {
      const nlohmann::json& anatomy = row["anatomy"];
      double peak = 0;
      for (const auto& point : anatomy["memory"]) peak = std::max(peak, point[1].get<double>());
      const double blocks = static_cast<double>(anatomy["blocks"].size());
      nlohmann::json told = {{"recompute", policy},
                             {"activation_bytes", peak},
                             {"activation_bytes_theory", anatomy["activation_bytes_theory"]},
                             {"peak_memory_bytes", row["peak_memory_bytes"]},
                             {"recomputed_blocks", anatomy["block_runs"].get<double>() - blocks},
                             {"blocks", blocks}};
      add_curve(anatomy, told);
      told["time_ratio_theory"] =
          1 + told["recomputed_blocks"].get<double>() / blocks / (1 + kBackwardPasses);
      traced_.push_back(std::move(told));
    });
  }

  // Every other round backwards: what changes during a round does not favour one policy.
  void time_all(bool backwards) {
    std::vector<std::string> order;
    for (const auto& row : traced_) order.push_back(row["recompute"]);
    if (backwards) std::reverse(order.begin(), order.end());
    StepsToMeasure steps = steps_with(join(order, ","));
    steps.anatomy = false;
    std::map<std::string, double> seconds;
    measure_steps(lab_, steps, [&](const nlohmann::json& row) {
      seconds[row["recompute"]] = row["step_seconds"]["median"];
    });
    for (const auto& [policy, taken] : seconds) {
      seconds_[policy].push_back(taken);
      if (seconds.contains("none")) ratios_[policy].push_back(taken / seconds["none"]);
    }
  }

  void add_times(nlohmann::json& row) const {
    const std::string policy = row["recompute"];
    if (!ratios_.contains(policy)) return;
    const std::vector<double>& ratios = ratios_.at(policy);
    row["step_seconds"] = metrics::median(seconds_.at(policy));
    row["time_ratio"] = metrics::median(ratios);
    row["time_ratio_low"] = metrics::quantile(ratios, kLowQuartile);
    row["time_ratio_high"] = metrics::quantile(ratios, kHighQuartile);
  }

  static std::vector<report::Point> points_of(const nlohmann::json& memory) {
    std::vector<report::Point> points;
    for (const auto& point : memory) points.push_back({point[0], point[1]});
    return points;
  }

  // Against the number of the allocation: on a busy machine time has gaps.
  static void add_curve(const nlohmann::json& anatomy, nlohmann::json& told) {
    std::vector<report::Point> points = points_of(anatomy["memory"]);
    told["memory_seconds"] = pairs_of(points);
    double turn = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      if (points[i].x < anatomy["forward_end"]) turn = static_cast<double>(i);
      points[i].x = static_cast<double>(i);
    }
    told["forward_end"] = turn;
    told["memory"] = pairs_of(points);
  }

  static nlohmann::json pairs_of(const std::vector<report::Point>& points) {
    nlohmann::json pairs = nlohmann::json::array();
    for (const report::Point& point : report::thin_out(points, kMostPoints))
      pairs.push_back({point.x, point.y});
    return pairs;
  }

  static report::LineChart chart_of_step(const std::string& title) {
    return {.title = title,
            .x_label = "allocations and frees, in order",
            .y_label = "activations",
            .unit = report::Unit::kBytes,
            .from_zero = true};
  }

  std::string saw_tooth() const {
    report::LineChart chart = chart_of_step("Activation memory along a step");
    int colour = 0;
    for (const auto& row : traced_)
      chart.series.push_back(
          {.name = row["recompute"], .points = points_of(row["memory"]), .colour = ++colour});
    return report::to_svg(chart);
  }

  std::string against_time() const {
    report::LineChart chart = chart_of_step("Activation memory against time");
    chart.x_label = "time since the start of forward";
    chart.x_unit = report::Unit::kSeconds;
    chart.whole_x = false;
    int colour = 0;
    for (const auto& row : traced_)
      chart.series.push_back(
          {.name = row["recompute"], .points = points_of(row["memory_seconds"]), .colour = ++colour});
    return report::to_svg(chart);
  }

  report::LabFigure own_curve(const nlohmann::json& row) const {
    const std::string policy = row["recompute"];
    report::LineChart chart = chart_of_step("Activation memory, recompute " + policy);
    const double turn = row["forward_end"], formula = row["activation_bytes_theory"];
    report::Series forward{.name = "forward"}, backward{.name = "backward", .colour = 2};
    for (const report::Point& point : points_of(row["memory"]))
      (point.x <= turn ? forward : backward).points.push_back(point);
    const double end = backward.points.empty() ? turn : backward.points.back().x;
    chart.series = {forward, backward};
    chart.series.push_back(
        {.name = "formula", .points = {{0, formula}, {end, formula}}, .colour = 6, .theory = true});
    return {"sawtooth_" + policy.substr(0, policy.find(':')) +
                (policy.starts_with("budget") ? policy.substr(7) : ""),
            "recompute " + policy, report::to_svg(chart),
            fmt::format("{:.0f} of {:.0f} blocks run twice.", row["recomputed_blocks"].get<double>(),
                        row["blocks"].get<double>())};
  }

  std::string time_paid() const {
    report::StackedBars chart{.title = "Time of a step, by recomputation",
                              .x_label = "recompute",
                              .y_label = "time, relative to none",
                              .legend = false,
                              .layers = {"step"}};
    double at = 0;
    for (const auto& row : traced_) {
      if (!row.contains("time_ratio")) continue;
      chart.bars.push_back({at,
                            at + 0.8,
                            {row["time_ratio"]},
                            row["recompute"],
                            row["time_ratio_theory"],
                            row["time_ratio_low"],
                            row["time_ratio_high"]});
      ++at;
    }
    return report::to_svg(chart);
  }

  void policies_table() {
    report::LabTable table{
        {"recompute", "run twice", "activations", "formula", "process", "step", "time", "spread", "formula"},
        {}};
    for (const auto& row : traced_) {
      const bool timed = row.contains("time_ratio");
      table.rows.push_back(
          {row["recompute"],
           fmt::format("{:.0f} of {:.0f}", row["recomputed_blocks"].get<double>(),
                       row["blocks"].get<double>()),
           format_bytes(row["activation_bytes"]), format_bytes(row["activation_bytes_theory"]),
           format_bytes(row["peak_memory_bytes"]), timed ? format_duration(row["step_seconds"]) : "–",
           timed ? fmt::format("{:.2f}", row["time_ratio"].get<double>()) : "–",
           timed ? fmt::format("{:.2f}–{:.2f}", row["time_ratio_low"].get<double>(),
                               row["time_ratio_high"].get<double>())
                 : "–",
           fmt::format("{:.2f}", row["time_ratio_theory"].get<double>())});
    }
    table.notes = {
        "Run twice: blocks whose activations are dropped and computed again. Formula of activations: what "
        "the "
        "segments keep, plus the largest one (docs/memory.md); the loss and workspaces come on top. Process: "
        "peak of the whole process, on cuda of its tensors. Time: median relative to no recomputation in the "
        "same round; spread: half of the rounds."};
    lab_.show(table);
  }

  // ---- ZeRO ----

  std::string recipe() const {
    std::string text = fmt::format("[model]\nname = \"{}\"\n", model_);
    for (const auto& [key, value] : keys_) text += fmt::format("{} = {}\n", key.substr(6), value);
    text += fmt::format("[data]\nname = \"synthetic\"\nsamples = {}\nbatch_size = {}\n",
                        8 * ranks_ * lab_.values.integer("--batch", 1, 1 << 20), lab_.values.text("--batch"));
    return text + fmt::format("[train]\nsteps = {}\noptimizer = \"{}\"\nlr = 0.001\nthreads = 1\n",
                              kZeroSteps, lab_.values.text("--optimizer"));
  }

  void add_zero() {
    const std::string file = recipe_of(lab_, "", recipe());
    nlohmann::json stages = nlohmann::json::array();
    for (int stage : {0, 1, 2, 3})
      lab_.part(fmt::format("ZeRO {}, {} ranks", stage, ranks_),
                [&] { stages.push_back(train(file, stage)); });
    lab_.document["zero"] = stages;
    if (stages.empty()) return;
    lab_.page.section(fmt::format("ZeRO on {} ranks", ranks_));
    const nlohmann::json& whole = stages[0];
    report::StackedBars chart{.title = "Memory of a rank, by ZeRO stage",
                              .x_label = "ZeRO stage",
                              .y_label = "memory of a rank",
                              .unit = report::Unit::kBytes,
                              .layers = {"parameters", "gradients", "optimizer", "activations"}};
    report::LabTable table{
        {"stage", "parameters", "gradients", "optimizer", "together", "formula", "activations"}, {}};
    for (const auto& row : stages) {
      const int stage = row["stage"];
      auto share = [&](const char* what, int from) {
        return whole[what].get<double>() / (stage >= from ? ranks_ : 1);
      };
      const double formula =
          whole["stage"] == 0 ? share("parameters", 3) + share("gradients", 2) + share("optimizer", 1) : 0;
      const double all =
          row["parameters"].get<double>() + row["gradients"].get<double>() + row["optimizer"].get<double>();
      chart.bars.push_back({stage + 0.1,
                            stage + 0.9,
                            {row["parameters"], row["gradients"], row["optimizer"], row["activations"]},
                            fmt::format("{}", stage),
                            formula > 0 ? formula + row["activations"].get<double>() : 0});
      table.rows.push_back({fmt::format("{}", stage), format_bytes(row["parameters"]),
                            format_bytes(row["gradients"]), format_bytes(row["optimizer"]), format_bytes(all),
                            formula > 0 ? format_bytes(formula) : "–", format_bytes(row["activations"])});
    }
    lab_.page.add({"zero", "Memory of a rank", report::to_svg(chart),
                   "Stage 1 shards the optimizer's state, 2 also gradients, 3 also parameters. Dashed: the "
                   "sharded parts of stage 0 divided by the ranks, and the measured activations."});
    table.notes = {
        "As rank 0 of yoke train reports it: held between steps, gradients between backward and "
        "update. Activations: the rest of the peak, with workspaces and, in stage 3, gathered layers."};
    lab_.show(table);
  }

  nlohmann::json train(const std::string& file, int stage) {
    const LabTraining training(
        lab_, file, fmt::format("zero{}", stage), ranks_,
        {{"parallel.zero", fmt::format("{}", stage)}, {"train.device", lab_.values.text("--device")}});
    const nlohmann::json held = training.run().summary["memory"];
    nlohmann::json row;
    for (const char* what : {"parameters", "gradients", "optimizer", "activations"})
      row[what] = held[0][what];
    row["stage"] = stage;
    return row;
  }

  Lab& lab_;
  const std::string model_;
  const Keys keys_;
  const int ranks_;
  std::vector<std::string> policies_;
  std::vector<double> shares_;
  nlohmann::json traced_ = nlohmann::json::array();
  std::map<std::string, std::vector<double>> seconds_, ratios_;  // by policy; one of each round
};

}  // namespace

void run_lab_memory(Lab& lab) {
  MemoryLab(lab).run();
}

}  // namespace yoke::cli
