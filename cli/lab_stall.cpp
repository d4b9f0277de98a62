// A step of data parallel training: forward, backward, and an all-reduce of the gradients in fp32.
// Computation: operations of the model / (published peak x efficiency). The all-reduce: the fastest
// algorithm, every message on the links of the machines.
#include "cli/lab_stall.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/bench_scaling_command.h"
#include "cli/lab_devices.h"
#include "cli/lab_stall_cost.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/models/outline/outline.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

const std::vector<LabOption> kStallOptions = {
    {"--models", "alexnet,vgg16,resnet50,inception_v3,gpt2", "vgg16,resnet50", "of the table of models"},
    {"--preset", "dgx1", "dgx1", "machines: pcie4 pcie8 dgx1 p2.16xlarge dgx2 h100"},
    {"--network", "10gbit", "10gbit", "of each network interface"},
    {"--machines", "1,2,4,8,16", "1,2", "numbers of machines"},
    {"--device", "V100", "V100", "of the curves: K80 M60 P100 V100 A100 H100 H200"},
    {"--efficiency", "0.4", "0.4", "share of the peak that training reaches"},
    {"--measured", "mlp,lenet,vgg_small", "mlp", "models to train here, beside the simulation; none"},
    {"--nproc", "2", "2", "ranks of that on this machine"},
    {"--batch", "32", "32", "samples of each of these ranks"},
};

namespace {

// Operations of a forward pass of one sample (a multiplication and an addition count as two), and the batch
// of one device. gpt2: 124M parameters, a sequence of 1024 tokens.
struct ModelCost {
  const char* name;
  double forward;
  double batch;
};
constexpr ModelCost kModels[] = {{"alexnet", 1.4e9, 128},
                                 {"vgg16", 31e9, 64},
                                 {"resnet50", 8.2e9, 64},
                                 {"inception_v3", 11.4e9, 64},
                                 {"gpt2", 250e9, 16}};
constexpr double kTraining = 3;  // forward and backward, in forward passes

const ModelCost& model_named(const std::string& name) {
  std::string known;
  for (const ModelCost& model : kModels) {
    if (name == model.name) return model;
    known += std::string(known.empty() ? "" : " ") + model.name;
  }
  throw ConfigError("--models {}: unknown. Accepted: {}.", name, known);
}

class StallLab {
 public:
  explicit StallLab(Lab& lab)
      : lab_(lab),
        machines_(lab.values.integers("--machines", 1, 64)),
        network_(lab.values.rate("--network")),
        efficiency_(lab.values.number("--efficiency", 0.001, 1)),
        ranks_(lab.values.integer("--nproc", 2, 64)),
        device_(known_device("--device", lab.values.text("--device"))) {
    for (const std::string& name : lab.values.words("--models")) models_.push_back(model_named(name));
    std::sort(machines_.begin(), machines_.end());
    cluster::preset(lab.values.text("--preset"), {});  // refuses an unknown name
    if (lab.values.text("--measured") != "none") measured_ = lab.values.words("--measured");
    for (const std::string& name : measured_) check_scaling(line_here(), cell_of(name), ranks_);
  }

  void run() {
    lab_.page.title = "Communication stalls";
    lab_.page.about = fmt::format(
        "Data parallel training on machines of the preset {}, network interfaces of {}/s, {:.0f} % of the "
        "published "
        "peak, gradients in fp32. Simulated: no machine of this kind was used.",
        lab_.values.text("--preset"), format_bytes(network_), 100 * efficiency_);
    lab_.expect(machines_.size() + 1 + measured_.size());
    for (int machines : machines_)
      lab_.part(fmt::format("{} machine{}", machines, machines == 1 ? "" : "s"),
                [&] { add_machines(machines); });
    lab_.page.add({"devices", fmt::format("Against the number of devices, {}", device_.name),
                   against_devices(),
                   "Dashed: without any overlap, communication / (computation + communication)."});
    lab_.part("device speeds", [&] {
      lab_.page.add({"speeds", fmt::format("Against the device, {}", count_of_machines()), against_speed(),
                     "Faster devices on the same links wait longer for them."});
    });
    table();
    measure();
  }

 private:
  CommandLine line_here() const {
    CommandLine line = lab_.line;
    line.bench_scaling.threads = 1;
    line.bench_scaling.steps = lab_.quick ? 3 : 20;
    return line;
  }

  std::string count_of_machines() const {
    return fmt::format("{} machine{}", machines_.back(), machines_.back() == 1 ? "" : "s");
  }

  ScalingCell cell_of(const std::string& model) const {
    return {model, lab_.values.integer("--batch", 1, 1 << 20)};
  }

  // The same share on this machine: what a step waits for communication, of steps of real ranks.
  void measure() {
    report::LabTable table{{"model", "ranks", "computation", "communication", "lost", "lost without overlap"},
                           {}};
    report::StackedBars chart{.title = "A step on this machine",
                              .x_label = "model",
                              .y_label = "share of a step",
                              .unit = report::Unit::kPercent,
                              .y_to = 1,
                              .layers = {"compute", "communication"}};
    for (const std::string& name : measured_)
      lab_.part(name + ", measured", [&] { add_measured(name, table, chart); });
    if (table.rows.empty()) return;
    lab_.page.section("Measured here");
    lab_.page.add(
        {"measured", "A step on this machine", report::to_svg(chart),
         fmt::format("{} ranks with one thread each. Dashed: where communication would begin if none of it "
                     "overlapped with computation.",
                     ranks_)});
    table.notes = {
        "Computation: the step of a rank that does not communicate. Lost: what a step waits for "
        "communication, "
        "as a share of the step."};
    lab_.show(table);
  }

  void add_measured(const std::string& name, report::LabTable& table, report::StackedBars& chart) {
    const nlohmann::json row =
        measure_scaling(line_here(), cell_of(name), ranks_, lab_.out / "measured.json");
    const double step = row["step_seconds"]["median"];
    Stall stall;
    stall.compute = std::min(step, row["alone_step_seconds"].get<double>());
    stall.communication = row["comm_seconds"];
    stall.exposed = std::clamp(row["exposed_comm_seconds"].get<double>(), 0.0, step);
    const auto at = static_cast<double>(chart.bars.size());
    chart.bars.push_back(
        {at, at + 0.8, {1 - stall.share(), stall.share()}, name, 1 - stall.without_overlap()});
    table.rows.push_back({name, fmt::format("{}", ranks_), format_duration(stall.compute),
                          format_duration(stall.communication), fmt::format("{:.1f} %", 100 * stall.share()),
                          fmt::format("{:.1f} %", 100 * stall.without_overlap())});
    lab_.document["measured"].push_back({{"model", name},
                                         {"ranks", ranks_},
                                         {"compute_seconds", stall.compute},
                                         {"comm_seconds", stall.communication},
                                         {"exposed_comm_seconds", stall.exposed},
                                         {"stall", stall.share()}});
  }

  double compute_of(const ModelCost& model, const KnownDevice& device) const {
    return kTraining * model.forward * model.batch / (device.training * efficiency_);
  }

  static double gradient_bytes(const ModelCost& model) {
    models::ModelOptions options;
    options.name = model.name;
    return models::outline_of(options).parameters * sizeof(float);
  }

  void add_machines(int machines) {
    const sim::TopologyPricer pricer(
        cluster::preset(lab_.values.text("--preset"), {.machines = machines, .network_bandwidth = network_}));
    const auto devices = static_cast<int>(pricer.rings().rings.empty() ? 0 : pricer.rings().rings[0].size());
    for (const ModelCost& model : models_) {
      const double bytes = gradient_bytes(model);
      double all_reduce = 0;
      for (plan::Algorithm one : pricer.algorithms(plan::Collective::kAllReduce)) {
        const double seconds = pricer.seconds(plan::Collective::kAllReduce, one, static_cast<int64_t>(bytes));
        all_reduce = all_reduce > 0 ? std::min(all_reduce, seconds) : seconds;
      }
      for (const KnownDevice& device : known_devices()) {
        const Stall stall = stall_of(compute_of(model, device), all_reduce, bytes);
        lab_.result({{"model", model.name},
                     {"device", device.name},
                     {"devices", devices},
                     {"machines", machines},
                     {"gradient_bytes", bytes},
                     {"compute_seconds", stall.compute},
                     {"all_reduce_seconds", stall.communication},
                     {"stall", stall.share()},
                     {"stall_without_overlap", stall.without_overlap()}});
      }
    }
  }

  std::string against_devices() const {
    report::LineChart chart{.title = "Share of time lost to communication",
                            .x_label = "devices",
                            .y_label = "lost to communication",
                            .unit = report::Unit::kPercent,
                            .from_zero = true,
                            .log_x = true};
    int colour = 0;
    for (const ModelCost& model : models_) {
      report::Series lost{.name = model.name, .points = {{1, 0}}, .colour = ++colour};
      report::Series bound{
          .name = colour == 1 ? "no overlap" : "", .points = {{1, 0}}, .colour = colour, .theory = true};
      for (const auto& row : lab_.document["results"]) {
        if (row["model"] != model.name || row["device"] != device_.name) continue;
        lost.points.push_back({row["devices"].get<double>(), row["stall"].get<double>()});
        bound.points.push_back({row["devices"].get<double>(), row["stall_without_overlap"].get<double>()});
      }
      chart.series.push_back(std::move(lost));
      chart.series.push_back(std::move(bound));
    }
    return report::to_svg(chart);
  }

  std::string against_speed() const {
    report::LineChart chart{.title = "Share of time lost to communication, by device",
                            .x_label = "peak of a device, TFLOP/s",
                            .y_label = "lost to communication",
                            .unit = report::Unit::kPercent,
                            .from_zero = true,
                            .log_x = true,
                            .whole_x = false};
    int colour = 0;
    for (const ModelCost& model : models_) {
      report::Series lost{.name = model.name, .colour = ++colour};
      for (const KnownDevice& device : known_devices())
        for (const auto& row : lab_.document["results"])
          if (row["model"] == model.name && row["device"] == device.name &&
              row["machines"] == machines_.back() &&
              (lost.points.empty() || lost.points.back().x < device.training / 1e12))
            lost.points.push_back({device.training / 1e12, row["stall"].get<double>()});
      chart.series.push_back(std::move(lost));
    }
    return report::to_svg(chart);
  }

  void table() {
    report::LabTable table{
        {"model", "gradients", "computation", "all-reduce", "lost", "lost without overlap"}, {}};
    for (const auto& row : lab_.document["results"])
      if (row["device"] == device_.name && row["machines"] == machines_.back())
        table.rows.push_back({row["model"], format_bytes(row["gradient_bytes"]),
                              format_duration(row["compute_seconds"]),
                              format_duration(row["all_reduce_seconds"]),
                              fmt::format("{:.1f} %", 100 * row["stall"].get<double>()),
                              fmt::format("{:.1f} %", 100 * row["stall_without_overlap"].get<double>())});
    table.notes = {
        fmt::format("{} on {}.", device_.name, count_of_machines()),
        "Peaks are published ones, dense, per device: K80 2.8, M60 4.8, P100 10.6 TFLOP/s in fp32; V100 "
        "125, A100 312, H100 and H200 989 TFLOP/s in fp16 or bf16. Batch per device: 64, alexnet 128, "
        "gpt2 16 sequences of 1024 tokens."};
    lab_.show(table);
  }

  Lab& lab_;
  std::vector<int> machines_;
  const double network_, efficiency_;
  const int ranks_;
  std::vector<std::string> measured_;
  const KnownDevice device_;
  std::vector<ModelCost> models_;
};

}  // namespace

void run_lab_stall(Lab& lab) {
  StallLab(lab).run();
}

}  // namespace yoke::cli
