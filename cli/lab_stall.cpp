// A step of data parallel training: forward, backward, and an all-reduce of the gradients in fp32, of which
// all but the last bucket may travel during backward. Computation: operations of the model / (published peak
// x efficiency). The all-reduce: the fastest algorithm, every message on the links of the machines.
#include "cli/lab_stall.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/models/outline/outline.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

const std::vector<LabOption> kStallOptions = {
    {"--models", "alexnet,vgg16,resnet50,inception_v3,gpt2", "vgg16,resnet50", "of the table of models"},
    {"--preset", "dgx1", "dgx1", "machines: pcie4 pcie8 dgx1 dgx2 h100"},
    {"--network", "10gbit", "10gbit", "of each network interface"},
    {"--machines", "1,2,4,8,16", "1,2", "numbers of machines"},
    {"--device", "V100", "V100", "of the curves: K80 M60 P100 V100 A100 H100 H200"},
    {"--efficiency", "0.4", "0.4", "share of the peak that training reaches"},
};

namespace {

// Published peaks for training, dense, of one device: tensor cores in fp16 or bf16 where there are some, fp32
// otherwise.
struct DevicePeak {
  const char* name;
  double flops;
};
constexpr DevicePeak kDevices[] = {{"K80", 2.8e12},  {"M60", 4.8e12},  {"P100", 10.6e12}, {"V100", 125e12},
                                   {"A100", 312e12}, {"H100", 989e12}, {"H200", 989e12}};

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
constexpr double kTraining = 3;             // forward and backward, in forward passes
constexpr double kBackwardShare = 2.0 / 3;  // of the computation
constexpr double kBucket = 25e6;            // bytes that travel after backward has ended

template <class Row, size_t N>
const Row& named(const Row (&rows)[N], const std::string& option, const std::string& name) {
  std::string known;
  for (const Row& row : rows) {
    if (name == row.name) return row;
    known += std::string(known.empty() ? "" : " ") + row.name;
  }
  throw ConfigError("{} {}: unknown. Accepted: {}.", option, name, known);
}

struct Stall {
  double compute = 0, communication = 0, exposed = 0;
  double share() const { return exposed / (compute + exposed); }
  double without_overlap() const { return communication / (compute + communication); }
};

class StallLab {
 public:
  explicit StallLab(Lab& lab)
      : lab_(lab),
        machines_(lab.values.integers("--machines", 1, 64)),
        network_(lab.values.rate("--network")),
        efficiency_(lab.values.number("--efficiency", 0.001, 1)),
        device_(named(kDevices, "--device", lab.values.text("--device"))) {
    for (const std::string& name : lab.values.words("--models"))
      models_.push_back(named(kModels, "--models", name));
    std::sort(machines_.begin(), machines_.end());
    cluster::preset(lab.values.text("--preset"), {});  // refuses an unknown name
  }

  void run() {
    lab_.page.title = "Communication stalls";
    lab_.page.about = fmt::format(
        "Data parallel training on machines of the preset {}, network interfaces of {}/s, {:.0f} % of the "
        "published "
        "peak, gradients in fp32. Simulated, no machine of this kind was used.",
        lab_.values.text("--preset"), format_bytes(network_), 100 * efficiency_);
    lab_.expect(machines_.size() + 1);
    for (int machines : machines_)
      lab_.part(fmt::format("{} machine{}", machines, machines == 1 ? "" : "s"),
                [&] { add_machines(machines); });
    lab_.page.add({"devices", fmt::format("Against the number of devices, {}", device_.name),
                   against_devices(),
                   "Dashed: without any overlap, communication / (computation + communication)."});
    lab_.part("device speeds", [&] {
      lab_.page.add({"speeds", fmt::format("Against the device, {} machine(s)", machines_.back()),
                     against_speed(), "Faster devices on the same links wait longer for them."});
    });
    table();
  }

 private:
  Stall stall_of(const ModelCost& model, const DevicePeak& device, double bytes, double all_reduce) const {
    Stall out;
    out.compute = kTraining * model.forward * model.batch / (device.flops * efficiency_);
    out.communication = all_reduce;
    const double tail = all_reduce * std::min(1.0, kBucket / bytes);
    out.exposed = std::max(tail, all_reduce - kBackwardShare * out.compute);
    return out;
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
      for (const DevicePeak& device : kDevices) {
        const Stall stall = stall_of(model, device, bytes, all_reduce);
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
      for (const DevicePeak& device : kDevices)
        for (const auto& row : lab_.document["results"])
          if (row["model"] == model.name && row["device"] == device.name &&
              row["machines"] == machines_.back() &&
              (lost.points.empty() || lost.points.back().x < device.flops / 1e12))
            lost.points.push_back({device.flops / 1e12, row["stall"].get<double>()});
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
        fmt::format("{} on {} machine(s).", device_.name, machines_.back()),
        "Peaks are published ones, dense, per device: K80 2.8, M60 4.8, P100 10.6 TFLOP/s in fp32; V100 "
        "125, A100 312, H100 and H200 989 TFLOP/s in fp16 or bf16. Batch per device: 64, alexnet 128, "
        "gpt2 16 sequences of 1024 tokens."};
    lab_.show(table);
  }

  Lab& lab_;
  std::vector<int> machines_;
  const double network_, efficiency_;
  const DevicePeak device_;
  std::vector<ModelCost> models_;
};

}  // namespace

void run_lab_stall(Lab& lab) {
  StallLab(lab).run();
}

}  // namespace yoke::cli
