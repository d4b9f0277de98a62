#include "cli/lab_throughput.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/lab_devices.h"
#include "cli/lab_measure.h"
#include "cli/lab_roofline.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kThroughputOptions = {
    {"--models", "mlp,lenet,vgg_small", "mlp,lenet", "models"},
    {"--batches", "1,4,16,64", "1,4,16", "batch sizes"},
    {"--precisions", "fp32,bf16", "fp32", "of fp32 tf32 bf16 fp16"},
    {"--device", "cpu", "cpu", "cpu or cuda"},
    {"--threads", "0", "1", "CPU threads; 0: all cores"},
    {"--steps", "5", "2", "timed steps of each batch size"},
    {"--largest", "predicted", "predicted", "largest batch: predicted from small steps, or measured"},
};

namespace {

constexpr double kFull = 0.9;      // of the best speed: the device is full
constexpr double kUsable = 0.95;   // of a device's memory
constexpr int kAnatomyBatch = 16;  // its operations and bytes scale with the batch
constexpr size_t kLeastForFit = 3;

struct Curve {
  std::string model, precision;
  std::vector<report::Point> speed = {};  // samples/s against batch
  StepCost cost = {};
  Roofline here = {};
  BatchLine line = {};
  double knee = 0;  // the smallest measured batch with kFull of the best speed
  double sample_bytes = 0, fixed_bytes = 0, held_bytes = 0;
  double largest = 0;
  std::vector<nlohmann::json> rows = {};  // as measured, one for each batch size
  bool has_cost() const { return cost.flops > 0; }
  std::string name() const { return model + " " + precision; }
  double width() const { return precision == "bf16" || precision == "fp16" ? 0.5 : 1; }
  double best() const {
    double best = 0;
    for (const report::Point& point : speed) best = std::max(best, point.y);
    return best;
  }
  // Largest batch for which `memory` bytes suffice.
  double fits(double memory) const {
    return sample_bytes > 0 ? std::max(0.0, (memory - held_bytes - fixed_bytes) / sample_bytes) : 0;
  }
};

// Least squares of the relative errors of the times.
BatchLine fit(const std::vector<report::Point>& speed) {
  double w = 0, x = 0, xx = 0, y = 0, xy = 0;
  for (const report::Point& point : speed) {
    const double seconds = point.x / point.y, weight = 1 / (seconds * seconds);
    w += weight;
    x += weight * point.x;
    xx += weight * point.x * point.x;
    y += weight * seconds;
    xy += weight * point.x * seconds;
  }
  BatchLine line;
  line.each = std::max(0.0, (w * xy - x * y) / (w * xx - x * x));
  line.fixed = std::max(0.0, (y - line.each * x) / w);
  return line;
}

class ThroughputLab {
 public:
  explicit ThroughputLab(Lab& lab)
      : lab_(lab),
        models_(lab.values.words("--models")),
        precisions_(lab.values.words("--precisions")),
        batches_(lab.values.integers("--batches", 1, 1 << 20)),
        measures_largest_(lab.values.text("--largest") == "measured") {
    std::sort(batches_.begin(), batches_.end());
    batches_.erase(std::unique(batches_.begin(), batches_.end()), batches_.end());
    if (!measures_largest_ && lab.values.text("--largest") != "predicted")
      throw ConfigError("--largest {}: expected predicted or measured.", lab.values.text("--largest"));
    for (const std::string& model : models_)
      for (const std::string& precision : precisions_) check_steps(steps_of(model, precision));
  }

  void run() {
    lab_.page.title = "Throughput against the batch size";
    lab_.page.about = fmt::format("Whole training steps on {}, plain SGD, medians of {} steps.",
                                  lab_.values.text("--device"), lab_.values.text("--steps"));
    lab_.expect(models_.size() * precisions_.size() * (measures_largest_ ? 3 : 2));
    for (const std::string& model : models_)
      for (const std::string& precision : precisions_) measure(model, precision);
    std::erase_if(curves_, [](const Curve& curve) { return curve.speed.empty(); });
    share_roofs();
    for (const Curve& curve : curves_)
      for (const nlohmann::json& row : curve.rows) add_result(curve, row);
    lab_.page.section("Speed");
    for (const std::string& model : models_) lab_.page.add(speed_of(model));
    speed_table();
    lab_.page.section("What limits it");
    lab_.page.add(
        {"roofline", "Roofline", roofline(),
         "Each line is a model, from the smallest batch to the largest. Dashed: the measured peak of "
         "matrix products and the measured bandwidth of copies. Left of the bend memory limits, right "
         "of it computing. Small models stay in caches and pass the roof of the memory."});
    lab_.page.add(
        {"devices", "Known devices, predicted", against_devices(),
         "Dashed: the roofline of published peaks, an upper bound, at the largest batch of this page. "
         "Dots: measured here."});
    lab_.page.add({"speedup", "Speed-up over K80, predicted", speed_ups(),
                   "Of the last model; each device in the precision in which it trains fastest."});
    devices_table();
  }

 private:
  StepsToMeasure steps_of(const std::string& model, const std::string& precision) const {
    return {.model = model,
            .batches = batches_,
            .precision = precision,
            .device = lab_.values.text("--device"),
            .threads = lab_.values.integer("--threads", 0, 4096),
            .steps = lab_.values.integer("--steps", 1, 1'000'000)};
  }

  void measure(const std::string& model, const std::string& precision) {
    Curve curve{.model = model, .precision = precision};
    StepsToMeasure steps = steps_of(model, precision);
    lab_.part(curve.name(), [&] {
      measure_steps(lab_, steps, [&](nlohmann::json row) {
        curve.speed.push_back({row["batch"], row["samples_per_s"]});
        curve.rows.push_back(std::move(row));
      });
    });
    steps.batches = {std::min(kAnatomyBatch, batches_.back())};
    steps.steps = 1;
    steps.anatomy = true;
    lab_.part(curve.name() + ", operations and bytes", [&] {
      measure_steps(lab_, steps, [&](const nlohmann::json& row) { take_anatomy(row, curve); });
    });
    if (measures_largest_) {
      steps.batches.clear();
      steps.anatomy = false;
      lab_.part(curve.name() + ", largest batch", [&] {
        measure_steps(lab_, steps, [&](const nlohmann::json& row) { curve.largest = row["largest_batch"]; });
      });
    }
    if (curve.speed.size() >= kLeastForFit) curve.line = fit(curve.speed);
    for (const report::Point& point : curve.speed)
      if (curve.knee == 0 && point.y >= kFull * curve.best()) curve.knee = point.x;
    curves_.push_back(std::move(curve));
  }

  void take_anatomy(const nlohmann::json& row, Curve& curve) const {
    const nlohmann::json& anatomy = row["anatomy"];
    double kept = 0;
    for (const auto& block : anatomy["blocks"]) kept += block["activation_bytes"].get<double>();
    // As measured: narrow types are in it. Costs are of fp32.
    curve.cost = {.flops = anatomy["flops_per_sample"],
                  .activation_bytes = kept / row["batch"].get<double>() / curve.width(),
                  .parameter_bytes = anatomy["parameter_bytes"],
                  .optimizer_bytes = anatomy["optimizer_bytes"]};
    curve.here = {.peak = anatomy["matmul_flops"], .bandwidth = anatomy["copy_bytes_per_s"]};
    // The process may have had room already and not have grown.
    curve.sample_bytes = std::max(anatomy["sample_bytes"].get<double>(), kept / row["batch"].get<double>());
    curve.fixed_bytes = anatomy["fixed_bytes"];
    curve.held_bytes = 2 * curve.cost.parameter_bytes + curve.cost.optimizer_bytes;
    if (!measures_largest_) curve.largest = curve.fits(kUsable * anatomy["free_bytes"].get<double>());
  }

  // The device is the same for all models: the best that any of them measured.
  void share_roofs() {
    for (const Curve& curve : curves_) {
      Roofline& roof = roofs_[curve.precision];
      roof.peak = std::max(roof.peak, curve.here.peak);
      roof.bandwidth = std::max(roof.bandwidth, curve.here.bandwidth);
    }
    for (Curve& curve : curves_) curve.here = roofs_[curve.precision];
  }

  void add_result(const Curve& curve, const nlohmann::json& row) {
    const double batch = row["batch"];
    nlohmann::json told = {{"model", curve.model},
                           {"precision", curve.precision},
                           {"batch", batch},
                           {"samples_per_s", row["samples_per_s"]},
                           {"step_seconds", row["step_seconds"]["median"]},
                           {"tflops", row["tflops"]},
                           {"peak_memory_bytes", row["peak_memory_bytes"]},
                           {"knee_batch", curve.knee},
                           {"largest_batch", curve.largest}};
    if (curve.line.each > 0) told["samples_per_s_fit"] = curve.line.samples_per_s(batch);
    if (curve.has_cost()) {
      told["intensity"] = curve.cost.intensity(batch, curve.width());
      told["roofline_samples_per_s"] = curve.here.samples_per_s(curve.cost, batch, curve.width());
    }
    lab_.result(std::move(told));
  }

  report::LabFigure speed_of(const std::string& model) const {
    report::LineChart chart{.title = "Samples per second, " + model,
                            .x_label = "batch size",
                            .y_label = "samples/s",
                            .log = true,
                            .log_x = true};
    int colour = 0;
    for (const Curve& curve : curves_) {
      if (curve.model != model) continue;
      chart.series.push_back({.name = curve.precision, .points = curve.speed, .colour = ++colour});
      if (curve.line.each <= 0) continue;
      report::Series line{.name = colour == 1 ? "fixed + per sample" : "", .colour = colour, .theory = true};
      for (const report::Point& point : curve.speed)
        line.points.push_back({point.x, curve.line.samples_per_s(point.x)});
      chart.series.push_back(std::move(line));
    }
    return {"speed_" + model, model, report::to_svg(chart),
            "Dashed: a step takes a fixed time plus a time per sample, fitted. The device is full where the "
            "curve turns flat."};
  }

  void speed_table() {
    report::LabTable table{{"model", "precision", "samples/s", "full from", "fixed", "per sample",
                            "of the roofline", "largest batch"},
                           {}};
    for (const Curve& curve : curves_) {
      const double bound =
          curve.has_cost() ? curve.here.samples_per_s(curve.cost, curve.speed.back().x, curve.width()) : 0;
      table.rows.push_back({curve.model, curve.precision, format_short(curve.best()),
                            fmt::format("batch {:.0f}", curve.knee), format_duration(curve.line.fixed),
                            format_duration(curve.line.each),
                            bound > 0 ? fmt::format("{:.0f} %", 100 * curve.speed.back().y / bound) : "–",
                            curve.largest > 0 ? format_short(curve.largest) : "–"});
    }
    table.notes = {fmt::format(
        "Full from: the smallest batch with {:.0f} % of the best speed. Largest batch: {}.", 100 * kFull,
        measures_largest_ ? "found by running steps"
                          : "predicted from steps of 4 and 12 samples and the free memory")};
    lab_.show(table);
  }

  std::string roofline() const {
    report::LineChart chart{.title = "Roofline",
                            .x_label = "operations per byte of memory traffic",
                            .y_label = "TFLOP/s",
                            .log = true,
                            .log_x = true,
                            .whole_x = false};
    double least = 1e300, most = 0;
    int colour = 0;
    for (const Curve& curve : curves_) {
      ++colour;
      if (!curve.has_cost()) continue;
      report::Series series{.name = curve.name(), .colour = colour};
      for (const report::Point& point : curve.speed) {
        const double intensity = curve.cost.intensity(point.x, curve.width());
        series.points.push_back({intensity, point.y * curve.cost.flops / 1e12});
        least = std::min(least, intensity);
        most = std::max(most, intensity);
      }
      chart.series.push_back(std::move(series));
    }
    colour = 5;
    for (const auto& [precision, roof] : roofs_) {
      if (roof.peak <= 0 || roof.bandwidth <= 0) continue;
      const double bend = roof.peak / roof.bandwidth;
      report::Series line{.name = "roof " + precision, .colour = ++colour, .theory = true};
      for (double at : {std::min(least, bend / 2), bend, std::max(most, bend * 2)})
        line.points.push_back({at, roof.at(at) / 1e12});
      chart.series.push_back(std::move(line));
    }
    return report::to_svg(chart);
  }

  double predicted(const Curve& curve, const KnownDevice& device) const {
    return Roofline{device.training, device.bandwidth}.samples_per_s(curve.cost, batches_.back(),
                                                                     device.half_training ? 0.5 : 1);
  }

  // One for each model: in the first precision.
  std::vector<const Curve*> one_each() const {
    std::vector<const Curve*> chosen;
    for (const std::string& model : models_)
      for (const Curve& curve : curves_)
        if (curve.model == model && curve.has_cost() && (chosen.empty() || chosen.back()->model != model))
          chosen.push_back(&curve);
    return chosen;
  }

  std::string against_devices() const {
    report::LineChart chart{.title = "Samples per second, known devices",
                            .x_label = "peak of a device, TFLOP/s",
                            .y_label = "samples/s",
                            .log = true,
                            .log_x = true,
                            .whole_x = false};
    int colour = 0;
    for (const Curve* curve : one_each()) {
      ++colour;
      report::Series bound{.name = "", .colour = colour, .theory = true};
      bound.points.push_back(
          {curve->here.peak / 1e12, curve->here.samples_per_s(curve->cost, batches_.back(), curve->width())});
      for (const KnownDevice& device : known_devices())
        bound.points.push_back({device.training / 1e12, predicted(*curve, device)});
      std::stable_sort(bound.points.begin(), bound.points.end(), [](auto& a, auto& b) { return a.x < b.x; });
      chart.series.push_back(std::move(bound));
      chart.series.push_back({.name = curve->model,
                              .points = {{curve->here.peak / 1e12, curve->speed.back().y}},
                              .colour = colour});
    }
    return report::to_svg(chart);
  }

  std::string speed_ups() const {
    report::StackedBars chart{.title = "Speed-up over K80, predicted",
                              .x_label = "device",
                              .y_label = "speed-up",
                              .legend = false,
                              .layers = {"speed-up"}};
    const std::vector<const Curve*> curves = one_each();
    double at = 0;
    if (!curves.empty())
      for (const KnownDevice& device : known_devices()) {
        chart.bars.push_back(
            {at,
             at + 0.8,
             {predicted(*curves.back(), device) / predicted(*curves.back(), known_devices()[0])},
             device.name});
        ++at;
      }
    return report::to_svg(chart);
  }

  void devices_table() {
    report::LabTable table{{"device", "year", "TFLOP/s", "bandwidth", "memory"}, {}};
    const std::vector<const Curve*> curves = one_each();
    for (const Curve* curve : curves) {
      table.head.push_back(curve->model + ", samples/s");
      table.head.push_back("largest batch");
    }
    nlohmann::json predictions = nlohmann::json::array();
    for (const KnownDevice& device : known_devices()) {
      std::vector<std::string> row = {device.name, fmt::format("{}", device.year),
                                      fmt::format("{:.4g}", device.training / 1e12),
                                      format_bytes(device.bandwidth) + "/s", format_bytes(device.memory)};
      for (const Curve* curve : curves) {
        const double speed = predicted(*curve, device), largest = curve->fits(kUsable * device.memory);
        row.push_back(format_short(speed));
        row.push_back(format_short(largest));
        predictions.push_back({{"device", device.name},
                               {"model", curve->model},
                               {"batch", batches_.back()},
                               {"samples_per_s", speed},
                               {"largest_batch", largest}});
      }
      table.rows.push_back(std::move(row));
    }
    if (!curves.empty()) {
      std::vector<std::string> row = {"measured here", "", fmt::format("{:.3g}", curves[0]->here.peak / 1e12),
                                      format_bytes(curves[0]->here.bandwidth) + "/s", ""};
      for (const Curve* curve : curves) {
        row.push_back(format_short(curve->speed.back().y));
        row.push_back(curve->largest > 0 ? format_short(curve->largest) : "–");
      }
      table.rows.push_back(std::move(row));
    }
    lab_.document["predictions"] = std::move(predictions);
    table.notes = {
        fmt::format(
            "Predicted: the roofline of published peaks and bandwidths with batch {}, an upper bound: real "
            "steps reach a part of it. V100 and later in 16-bit on tensor cores, the others in fp32; K80 "
            "and M60: one of the two GPUs of a board.",
            batches_.back()),
        "Memory traffic: activations are written once and read twice, their gradients written and read; "
        "weights "
        "are read in forward and backward, and read and written by the update."};
    lab_.show(table);
  }

  Lab& lab_;
  const std::vector<std::string> models_, precisions_;
  std::vector<int> batches_;
  const bool measures_largest_;
  std::vector<Curve> curves_;
  std::map<std::string, Roofline> roofs_;  // by precision
};

}  // namespace

void run_lab_throughput(Lab& lab) {
  ThroughputLab(lab).run();
}

}  // namespace yoke::cli
