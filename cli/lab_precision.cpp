// Each precision trains the same model from the same weights. What fp16 loses is computed from the sizes of
// the fp32 gradients of one step, by powers of two (Micikevicius et al. 2018).
#include "cli/lab_precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/lab_exponents.h"
#include "cli/lab_measure.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kPrecisionOptions = {
    {"--precisions", "fp32,tf32,fp16,bf16", "fp32,tf32,bf16",
     "of fp32 tf32 fp16 bf16; fp32 is always measured"},
    {"--device", "cpu", "cpu", "cpu or cuda"},
    {"--layers", "2", "1", "blocks of the GPT-2 that is trained"},
    {"--width", "256", "32", "its hidden size"},
    {"--batch", "16", "4", "samples of a step, of 64 tokens"},
    {"--steps", "40", "10", "of each run"},
    {"--scale-steps", "12000", "100", "of the run with a small model that shows the loss scale; 0: none"},
};

namespace {

constexpr int kScales = 24;  // powers of two

constexpr const char* kScaleRecipe = R"([model]
name = "mlp"
sizes = [32, 64, 10]

[data]
name = "synthetic"
samples = 1024
batch_size = 32

[train]
optimizer = "sgd"
lr = 0.01
threads = 1
precision = "fp16"
)";

// Whether this processor has instructions for the type; `flags` of /proc/cpuinfo.
bool has_instructions(const std::string& precision) {
  const std::vector<std::string> flags =
      precision == "bf16" ? std::vector<std::string>{" avx512_bf16 ", " amx_bf16 ", " bf16 "}
                          : std::vector<std::string>{" avx512_fp16 ", " amx_fp16 ", " fphp "};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags") || line.starts_with("Features"))
      return std::any_of(flags.begin(), flags.end(), [&](const std::string& flag) {
        return (line + " ").find(flag) != std::string::npos;
      });
  return false;
}

class PrecisionLab {
 public:
  explicit PrecisionLab(Lab& lab)
      : lab_(lab), device_(lab.values.text("--device")), precisions_(lab.values.words("--precisions")) {
    std::erase(precisions_, "fp32");
    precisions_.insert(precisions_.begin(), "fp32");
    const int width = lab.values.integer("--width", 8, 1 << 14);
    keys_ = {{"model.layers", fmt::format("{}", lab.values.integer("--layers", 1, 1000))},
             {"model.width", fmt::format("{}", width)},
             {"model.heads", fmt::format("{}", width % 64 == 0 ? width / 64 : 1)},
             {"model.vocabulary", "512"},
             {"model.positions", "64"}};
    file_ = recipe_of(lab, "", recipe());
    for (const std::string& precision : precisions_) plan(precision);
  }

  void run() {
    lab_.page.title = "Number formats";
    lab_.page.about =
        fmt::format("GPT-2 with {} of width {}, batch {} x 64 tokens, {}, on {}.",
                    counted(lab_.values.text("--layers"), "block"), lab_.values.text("--width"),
                    lab_.values.text("--batch"), counted(lab_.values.text("--steps"), "step"), device_);
    const int scale_steps = lab_.values.integer("--scale-steps", 0, 100'000'000);
    lab_.expect(trainings_.size() + 1 + (scale_steps > 0 ? 1 : 0));
    for (const auto& [precision, training] : trainings_)
      lab_.part(precision, [&, &name = precision, &one = training] { add_run(name, one.run()); });
    lab_.part("sizes of gradients", [&] { measure_gradients(); });
    if (scale_steps > 0) lab_.part("loss scale", [&] { follow_scale(scale_steps); });
    table();
    lab_.page.add(bars("speed", "Speed", "samples/s", "samples_per_s", report::Unit::kNumber));
    lab_.page.add(
        bars("memory", "Memory of the process", "peak memory", "peak_memory_bytes", report::Unit::kBytes));
    lab_.page.add({"loss", "Loss", loss_chart(), "The same weights, samples and steps."});
    if (runs_.size() > 1 && runs_[0].first == "fp32")
      lab_.page.add({"difference", "Difference of the loss from fp32", difference_chart(),
                     "In the same step: what rounding changes."});
    if (!gradients_.counts.empty()) add_gradients();
    if (!scale_.empty())
      lab_.page.add(
          {"scale", "Loss scale along training", scale_chart(),
           "Of a small perceptron in fp16. It halves when a gradient overflows, and that step is skipped; "
           "after 2000 good steps it doubles. Dashed: what doubling alone would give."});
  }

 private:
  std::string recipe() const {
    std::string text = "[model]\nname = \"gpt2\"\n";
    for (const auto& [key, value] : keys_) text += fmt::format("{} = {}\n", key.substr(6), value);
    return text + fmt::format(
                      "[data]\nname = \"synthetic\"\nsamples = 1024\nbatch_size = {}\n"
                      "[train]\nsteps = {}\noptimizer = \"adamw\"\nlr = 0.001\nevaluate = false\n",
                      lab_.values.integer("--batch", 1, 1 << 20),
                      lab_.values.integer("--steps", 2, 1'000'000));
  }

  // A format that the device lacks is a result, not a failure; an unknown one is an error.
  void plan(const std::string& precision) {
    const bool known =
        precision == "fp32" || precision == "tf32" || precision == "fp16" || precision == "bf16";
    if (!known) throw ConfigError("--precisions {}: expected fp32, tf32, fp16 or bf16.", precision);
    try {
      trainings_.emplace_back(
          precision,
          LabTraining(lab_, file_, precision, 1,
                      {{"train.precision", precision}, {"train.device", device_}, {"out.log_every", "1"}}));
    } catch (const ConfigError& error) {
      if (precision != "tf32") throw;
      lab_.result({{"precision", precision}, {"available", false}, {"note", error.what()}});
    }
  }

  std::string note_of(const std::string& precision) const {
    if (precision == "fp32") return "";
    if (device_ != "cpu") return "on tensor cores";
    return has_instructions(precision) ? "this processor has instructions for it"
                                       : "emulated: this processor has no instructions for it";
  }

  void add_run(const std::string& precision, TrainedRun run) {
    lab_.result({{"precision", precision},
                 {"available", true},
                 {"samples_per_s", run.summary["samples_per_s"]},
                 {"step_seconds", run.summary["step_seconds"]["median"]},
                 {"peak_memory_bytes", run.summary["peak_memory_bytes"][0]},
                 {"final_loss", end_loss(run.records)},
                 {"note", note_of(precision)}});
    runs_.emplace_back(precision, std::move(run.records));
  }

  void measure_gradients() {
    const StepsToMeasure steps{.model = "gpt2",
                               .batches = {lab_.values.integer("--batch", 1, 1 << 20)},
                               .device = device_,
                               .steps = 1,
                               .anatomy = true,
                               .keys = keys_};
    measure_steps(lab_, steps, [&](const nlohmann::json& row) {
      const nlohmann::json& sizes = row["anatomy"]["gradients"];
      gradients_.lowest = sizes["lowest_exponent"];
      zeros_ = sizes["zeros"];
      for (const auto& count : sizes["counts"]) gradients_.counts.push_back(count);
      lab_.document["gradients"] = sizes;
    });
    nlohmann::json lost = nlohmann::json::array();
    for (int scale = 0; scale <= kScales; ++scale)
      lost.push_back({{"loss_scale", std::exp2(scale)},
                      {"underflow", gradients_.underflow(scale)},
                      {"overflow", gradients_.overflow(scale)}});
    lab_.document["fp16"] = std::move(lost);
  }

  void follow_scale(int steps) {
    const std::string file = (lab_.out / "scale.toml").string();
    write_file_atomically(file, kScaleRecipe);
    const LabTraining training(lab_, file, "loss_scale", 1,
                               {{"train.steps", fmt::format("{}", steps)},
                                {"train.device", device_},
                                {"train.evaluate", "false"},
                                {"out.log_every", fmt::format("{}", std::max(1, steps / 300))}});
    for (const metrics::Record& record : training.run().records)
      if (record.loss_scale) scale_.push_back({static_cast<double>(record.step), *record.loss_scale});
    nlohmann::json curve = nlohmann::json::array();
    for (const report::Point& point : scale_) curve.push_back({point.x, point.y});
    lab_.document["loss_scale"] = std::move(curve);
  }

  report::LabFigure bars(const std::string& name, const std::string& title, const std::string& label,
                         const char* key, report::Unit unit) const {
    report::StackedBars chart{.title = title,
                              .x_label = "precision",
                              .y_label = label,
                              .unit = unit,
                              .legend = false,
                              .layers = {label}};
    double at = 0;
    for (const auto& row : lab_.document["results"])
      if (row.contains(key)) {
        chart.bars.push_back({at, at + 0.8, {row[key]}, row["precision"]});
        ++at;
      }
    return {name, title, report::to_svg(chart)};
  }

  std::string loss_chart() const {
    report::LineChart chart{.title = "Loss by precision", .x_label = "step", .y_label = "loss"};
    int colour = 0;
    for (const auto& [precision, records] : runs_) {
      report::Series series{.name = precision, .colour = ++colour};
      for (const metrics::Record& record : records)
        series.points.push_back({static_cast<double>(record.step), record.loss});
      chart.series.push_back(std::move(series));
    }
    return report::to_svg(chart);
  }

  std::string difference_chart() const {
    report::LineChart chart{
        .title = "Difference of the loss from fp32", .x_label = "step", .y_label = "difference", .log = true};
    const std::vector<metrics::Record>& base = runs_[0].second;
    for (size_t i = 1; i < runs_.size(); ++i) {
      report::Series series{.name = runs_[i].first, .colour = static_cast<int>(i) + 1};
      for (size_t at = 0; at < std::min(base.size(), runs_[i].second.size()); ++at) {
        const double apart = std::abs(runs_[i].second[at].loss - base[at].loss);
        if (apart > 0) series.points.push_back({static_cast<double>(base[at].step), apart});
      }
      chart.series.push_back(std::move(series));
    }
    return report::to_svg(chart);
  }

  void add_gradients() {
    lab_.page.section("What fp16 loses");
    report::StackedBars chart{.title = "Sizes of gradients",
                              .x_label = "exponent of two",
                              .y_label = "gradients",
                              .whole = true,
                              .layers = {"0 in fp16", "fewer digits", "all digits"}};
    for (size_t i = 0; i < gradients_.counts.size(); ++i) {
      const int exponent = gradients_.lowest + static_cast<int>(i);
      const size_t layer = exponent < kZeroBelow ? 0 : exponent < kShortBelow ? 1 : 2;
      std::vector<double> values(3, 0);
      values[layer] = gradients_.counts[i];
      chart.bars.push_back({exponent - 0.5, exponent + 0.5, values});
    }
    lab_.page.add(
        {"gradients", "Sizes of the gradients of one step", report::to_svg(chart),
         fmt::format("fp32, without a loss scale: {:.2g} % would become 0 in fp16, {:.2g} % lose digits. "
                     "bf16 has the exponents of fp32 and loses none.",
                     100 * gradients_.underflow(0), 100 * gradients_.fewer_digits(0))});
    report::LineChart lost{.title = "Lost gradients against the loss scale",
                           .x_label = "loss scale",
                           .y_label = "share of gradients",
                           .unit = report::Unit::kPercent,
                           .from_zero = true,
                           .log_x = true};
    report::Series under{.name = "becomes 0"}, shorter{.name = "fewer digits", .colour = 2},
        over{.name = "overflows", .colour = 5};
    for (int scale = 0; scale <= kScales; ++scale) {
      const double at = std::exp2(scale);
      under.points.push_back({at, gradients_.underflow(scale)});
      shorter.points.push_back({at, gradients_.fewer_digits(scale)});
      over.points.push_back({at, gradients_.overflow(scale)});
    }
    lost.series = {under, shorter, over};
    lab_.page.add(
        {"underflow", "Lost gradients against the loss scale", report::to_svg(lost),
         "The loss is multiplied by the scale before backward, the gradients are divided by it after. One "
         "overflow is enough to skip a step."});
  }

  std::string scale_chart() const {
    report::LineChart chart{.title = "Loss scale", .x_label = "step", .y_label = "loss scale", .log = true};
    report::Series doubling{.name = "doubling", .colour = 6, .theory = true};
    for (const report::Point& point : scale_)
      doubling.points.push_back({point.x, 65536 * std::exp2(std::floor(point.x / 2000))});
    chart.series = {{.name = "loss scale", .points = scale_}, doubling};
    return report::to_svg(chart);
  }

  void table() {
    report::LabTable table{{"precision", "samples/s", "step", "memory", "loss", "vs fp32", "note"}, {}};
    double base = 0;
    for (const auto& row : lab_.document["results"])
      if (row["precision"] == "fp32") base = row["samples_per_s"];
    for (const auto& row : lab_.document["results"]) {
      if (!row["available"]) continue;
      const double speed = row["samples_per_s"];
      table.rows.push_back({row["precision"], format_short(speed), format_duration(row["step_seconds"]),
                            format_bytes(row["peak_memory_bytes"]),
                            fmt::format("{:.4f}", row["final_loss"].get<double>()),
                            base > 0 ? fmt::format("{:.2f}x", speed / base) : "–", row["note"]});
    }
    for (const auto& row : lab_.document["results"])
      if (!row["available"])
        table.rows.push_back({row["precision"], "–", "–", "–", "–", "–", "not on this device"});
    lab_.show(table);
  }

  Lab& lab_;
  const std::string device_;
  std::vector<std::string> precisions_;
  LabTraining::Settings keys_;
  std::string file_;
  std::vector<std::pair<std::string, LabTraining>> trainings_;
  std::vector<std::pair<std::string, std::vector<metrics::Record>>> runs_;
  Exponents gradients_;
  double zeros_ = 0;
  std::vector<report::Point> scale_;
};

}  // namespace

void run_lab_precision(Lab& lab) {
  PrecisionLab(lab).run();
}

}  // namespace yoke::cli
