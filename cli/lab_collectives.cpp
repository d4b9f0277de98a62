#include "cli/lab_collectives.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/bench_collectives_command.h"
#include "cli/lab_fastest.h"
#include "cli/ring_on_topology.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/report/lanes_svg.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/collectives.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

const std::vector<LabOption> kCollectivesOptions = {
    {"--op", "all_reduce", "all_reduce", "all_reduce reduce_scatter all_gather broadcast …"},
    {"--nproc", "2,4,8", "2", "numbers of ranks that measure, over tcp on this machine"},
    {"--bytes", "1K,4K,16K,64K,256K,1M,4M,16M", "1K,64K,1M", "sizes"},
    {"--preset", "h100", "h100", "machines of the prediction: pcie4 pcie8 dgx1 p2.16xlarge dgx2 h100"},
    {"--machines", "4", "2", "number of them"},
    {"--up-to", "64", "16", "largest number of ranks of the curves"},
    {"--ring", "pcie8", "pcie4", "machine on which a ring is drawn, of the same"},
};

namespace {

using plan::Algorithm;

constexpr double kPredictedLow = 256, kPredictedHigh = 1e9;
constexpr int64_t kSmall = 16 << 10, kLarge = 64 << 20;  // of the curves over ranks
constexpr int kRingRanks = 4;

// Of the tcp path of ranks on one machine: from the fastest array, and from the largest.
plan::LinkCost fitted(const std::vector<report::Point>& ring, plan::Collective op, int ranks) {
  plan::LinkCost cost{0, 0, 0};
  auto seconds = [&](double alpha, double beta, double bytes) {
    return plan::predict_seconds(op, Algorithm::kRing, ranks, static_cast<int64_t>(bytes), {alpha, beta, 0});
  };
  if (ring.size() < 2) return cost;
  const double least = std::ranges::min_element(ring, {}, &report::Point::y)->y;
  cost.alpha = least / seconds(1, 0, ring.front().x);
  cost.beta = std::max(0.0, ring.back().y - least) / seconds(0, 1, ring.back().x);
  return cost;
}

class CollectivesLab {
 public:
  explicit CollectivesLab(Lab& lab)
      : lab_(lab),
        op_(plan::parse_collective(lab.values.text("--op"))),
        nproc_(lab.values.integers("--nproc", 2, 64)),
        up_to_(lab.values.integer("--up-to", 2, 512)),
        sizes_(lab.values.sizes("--bytes")),
        topology_(cluster::preset(lab.values.text("--preset"),
                                  {.machines = lab.values.integer("--machines", 1, 64)})),
        pricer_(topology_),
        ring_machine_(cluster::preset(lab.values.text("--ring"))) {
    if (op_ == plan::Collective::kBarrier) throw ConfigError("--op barrier: it moves no bytes to plot.");
    std::sort(sizes_.begin(), sizes_.end());
    std::sort(nproc_.begin(), nproc_.end());
    nproc_.erase(std::unique(nproc_.begin(), nproc_.end()), nproc_.end());
    for (Algorithm one : plan::algorithms_for(op_))
      if (one != Algorithm::kSummation && one != Algorithm::kHierarchical && one != Algorithm::kExchange)
        algorithms_.push_back(one);
  }

  void run() {
    lab_.page.title = fmt::format("Collectives: {}", plan::to_string(op_));
    lab_.page.about = fmt::format("Measured with {} ranks over tcp on this machine; predicted for {} x {}.",
                                  fmt::join(nproc_, ", "), lab_.values.integer("--machines", 1, 64),
                                  lab_.values.text("--preset"));
    lab_.expect(nproc_.size() + (op_ == plan::Collective::kAllReduce ? 5 : 3));
    lab_.page.section("Time against bytes, measured");
    for (int ranks : nproc_) lab_.part(fmt::format("measure, {} ranks", ranks), [&] { measured(ranks); });
    if (!costs_.empty()) measured_over_ranks();
    lab_.page.section("Time against bytes, predicted");
    lab_.part("predict by topology", [&] { predicted(); });
    lab_.page.section("Time against ranks, predicted");
    lab_.part("small arrays", [&] { over_ranks(kSmall); });
    lab_.part("large arrays", [&] { over_ranks(kLarge); });
    if (op_ != plan::Collective::kAllReduce) return;
    lab_.page.section("A ring, step by step");
    lab_.part("a ring of four ranks", [&] { ring(); });
    lab_.part("a ring on " + ring_machine_.name, [&] { ring_on_machine(); });
  }

 private:
  static report::LineChart chart_of(const std::string& title) {
    return {.title = title,
            .x_label = "bytes",
            .y_label = "time",
            .unit = report::Unit::kSeconds,
            .log = true,
            .log_x = true,
            .whole_x = false,
            .x_unit = report::Unit::kBytes};
  }

  void measured(int ranks) {
    BenchCollectivesArguments request;
    request.nproc = ranks;
    request.backend = "tcp";
    request.ops = {plan::to_string(op_)};
    request.bytes.clear();
    for (int64_t bytes : sizes_) request.bytes.push_back(fmt::format("{}", bytes));
    request.algorithms.clear();
    for (Algorithm one : algorithms_) request.algorithms.push_back(plan::to_string(one));
    if (lab_.quick) request.iterations = 3;
    const nlohmann::json rows = measure_collectives(request, lab_.out / "measured.json");
    report::LineChart chart = chart_of("Measured time against bytes");
    std::vector<report::Point> of_ring;
    for (size_t i = 0; i < algorithms_.size(); ++i) {
      report::Series series{.name = plan::to_string(algorithms_[i]), .colour = static_cast<int>(i) + 1};
      for (const auto& row : rows)
        if (row["algorithm"] == series.name)
          series.points.push_back({row["bytes"].get<double>(), row["seconds"]["median"].get<double>()});
      if (algorithms_[i] == Algorithm::kRing) of_ring = series.points;
      chart.series.push_back(std::move(series));
    }
    const plan::LinkCost cost = fitted(of_ring, op_, ranks);
    for (size_t i = 0; i < algorithms_.size() && cost.alpha > 0; ++i) {
      report::Series model{.name = i == 0 ? "model" : "", .colour = static_cast<int>(i) + 1, .theory = true};
      for (int64_t bytes : sizes_)
        model.points.push_back(
            {static_cast<double>(bytes), plan::predict_seconds(op_, algorithms_[i], ranks, bytes, cost)});
      chart.series.push_back(std::move(model));
    }
    for (const auto& row : rows) {
      seconds_[row["algorithm"]].push_back(
          {ranks, row["bytes"].get<int64_t>(), row["seconds"]["median"].get<double>()});
      lab_.result({{"algorithm", row["algorithm"]},
                   {"ranks", row["ranks"]},
                   {"bytes", row["bytes"]},
                   {"seconds", row["seconds"]["median"]},
                   {"busbw", row["busbw"]},
                   {"correct", row["correct"]}});
    }
    costs_[ranks] = cost;
    lab_.document["fits"].push_back({{"ranks", ranks}, {"alpha", cost.alpha}, {"beta", cost.beta}});
    lab_.page.add(
        {fmt::format("measured_{}", ranks), fmt::format("{} ranks over tcp", ranks), report::to_svg(chart),
         fmt::format(
             "Dashed: α per message and β per byte, fitted to the fastest and the largest array of the "
             "ring: α = {}, 1/β = {}/s. Ranks that share cores differ from it.",
             format_duration(cost.alpha), format_bytes(cost.beta > 0 ? 1 / cost.beta : 0))});
  }

  // With the link of the fewest ranks as the theory: the rest is what more ranks on the same cores cost.
  void measured_over_ranks() {
    const int64_t bytes = sizes_.back();
    const plan::LinkCost cost = costs_.begin()->second;
    report::LineChart chart{.title = "Measured time against ranks",
                            .x_label = "ranks",
                            .y_label = "time",
                            .unit = report::Unit::kSeconds,
                            .log = true,
                            .log_x = true};
    int colour = 0;
    for (Algorithm one : algorithms_) {
      ++colour;
      report::Series series{.name = plan::to_string(one), .colour = colour};
      report::Series model{.name = colour == 1 ? "model" : "", .colour = colour, .theory = true};
      for (const Measured& row : seconds_[series.name])
        if (row.bytes == bytes) series.points.push_back({static_cast<double>(row.ranks), row.seconds});
      for (const auto& [ranks, unused] : costs_)
        if (cost.alpha > 0)
          model.points.push_back(
              {static_cast<double>(ranks), plan::predict_seconds(op_, one, ranks, bytes, cost)});
      chart.series.push_back(std::move(series));
      chart.series.push_back(std::move(model));
    }
    lab_.page.add({"measured_ranks",
                   fmt::format("{} against ranks", format_bytes(static_cast<double>(bytes))),
                   report::to_svg(chart),
                   fmt::format("Dashed: α and β of {} ranks, as if each further rank had a core of its own.",
                               costs_.begin()->first)});
  }

  void predicted() {
    report::LineChart chart = chart_of("Predicted time against bytes");
    std::string crossings;
    for (Algorithm one : pricer_.algorithms(op_)) {
      report::Series series{.name = plan::to_string(one), .colour = colour_of(one)};
      for (double bytes = kPredictedLow; bytes <= kPredictedHigh; bytes *= std::sqrt(10.0))
        series.points.push_back({bytes, pricer_.seconds(op_, one, static_cast<int64_t>(bytes))});
      chart.series.push_back(std::move(series));
    }
    for (const auto& [name, bytes, seconds] : fastest_of(chart.series)) {
      lab_.document["fastest"].push_back({{"algorithm", name}, {"from_bytes", bytes}, {"seconds", seconds}});
      crossings +=
          (crossings.empty() ? "" : ", then ") + fmt::format("{} from {}", name, format_bytes(bytes));
    }
    lab_.page.result = fmt::format("Fastest on {} x {}: {}.", lab_.values.integer("--machines", 1, 64),
                                   lab_.values.text("--preset"), crossings);
    for (report::Series& series : chart.series) series.theory = true;
    lab_.page.add({"predicted",
                   fmt::format("Predicted, {} x {} ({} devices)", lab_.values.integer("--machines", 1, 64),
                               lab_.values.text("--preset"), cluster::workers_of(topology_).size()),
                   report::to_svg(chart), "Every message on its links, round by round."});
    report::LabTable table{{"fastest", "from", "time"}, {}};
    for (const auto& row : lab_.document["fastest"])
      table.rows.push_back(
          {row["algorithm"], format_bytes(row["from_bytes"]), format_duration(row["seconds"])});
    table.notes = {"Predicted. From the size in each row on, until that of the next one."};
    lab_.show(table);
  }

  static int colour_of(Algorithm algorithm) { return static_cast<int>(algorithm) + 1; }

  void over_ranks(int64_t bytes) {
    const plan::LinkCost cost;  // a network of 1 GB/s and 20 µs
    report::LineChart chart{.title = "Time against ranks",
                            .x_label = "ranks",
                            .y_label = "time",
                            .unit = report::Unit::kSeconds,
                            .log = true,
                            .log_x = true};
    for (Algorithm one : algorithms_) {
      report::Series series{.name = plan::to_string(one), .colour = colour_of(one), .theory = true};
      for (int ranks = 2; ranks <= up_to_; ranks = std::max(ranks + 1, ranks * 5 / 4))
        series.points.push_back(
            {static_cast<double>(ranks), plan::predict_seconds(op_, one, ranks, bytes, cost)});
      chart.series.push_back(std::move(series));
    }
    const std::string size = format_bytes(static_cast<double>(bytes));
    lab_.page.add({bytes == kSmall ? "ranks_small" : "ranks_large", size, report::to_svg(chart),
                   bytes == kSmall
                       ? "20 µs a message and 1 GB/s. Small: the number of consecutive messages decides; a "
                         "ring has 2(N-1) of them, a tree about 4 log N."
                       : "Large: the busiest link decides; a ring sends 2(N-1)/N of the array over each, "
                         "a star N-1 times the array over one."});
  }

  // Which part of the array each rank sends in each step.
  void ring() {
    plan::CollectiveRequest request;
    request.size = kRingRanks;
    request.count = kRingRanks;
    const sim::StepLists lists = sim::steps_of_all(request);
    report::Lanes lanes;
    for (int rank = 0; rank < kRingRanks; ++rank) {
      lanes.rows.push_back(fmt::format("rank {}", rank));
      for (const plan::Step& step : lists[static_cast<size_t>(rank)]) {
        if (step.action != plan::Action::kSend) continue;
        report::LaneSpan span{rank, static_cast<double>(step.round), step.round + 1.0};
        const bool reduces = step.round < kRingRanks - 1;
        span.look = reduces ? report::Look::kBlue : report::Look::kGreen;
        span.text = fmt::format("part {}", step.range.begin);
        span.below = fmt::format("to {}", step.peer);
        span.tooltip =
            fmt::format("rank {} sends part {} to rank {}, step", rank, step.range.begin, step.peer);
        lanes.end = std::max(lanes.end, span.end);
        lanes.spans.push_back(std::move(span));
      }
    }
    report::LanesPicture picture{.label = "An all-reduce on a ring of four ranks",
                                 .parts = {std::move(lanes)}};
    picture.legend = {{report::Look::kBlue, "reduce-scatter: the receiver adds the part"},
                      {report::Look::kGreen, "all-gather: the receiver keeps the sum"}};
    picture.width = 760;
    picture.steps = true;
    lab_.page.add(
        {"ring", "All-reduce on a ring of four ranks", report::lanes_svg(picture),
         "In each of 2(N-1) steps every rank sends a part of the array to the next rank. After N-1 steps "
         "every rank has the sum of one part.",
         /*wide=*/true});
  }

  void ring_on_machine() {
    const size_t devices = cluster::workers_of(ring_machine_).size();
    lab_.page.add(
        {"ring_" + ring_machine_.name, fmt::format("The ring on {}", ring_machine_.name),
         report::ring_steps_svg(ring_steps(ring_machine_)),
         fmt::format("A column is a device, a cell one of its {0} parts. In every step each device sends one "
                     "part to the next one on the ring; a wider line carries more messages. After {1} steps "
                     "every device has the sum of one part, after {2} all of them.",
                     devices, devices - 1, 2 * (devices - 1)),
         /*wide=*/true});
  }

  struct Measured {
    int ranks = 0;
    int64_t bytes = 0;
    double seconds = 0;
  };

  Lab& lab_;
  const plan::Collective op_;
  std::vector<int> nproc_;
  const int up_to_;
  std::vector<int64_t> sizes_;
  const cluster::Topology topology_;
  const sim::TopologyPricer pricer_;
  const cluster::Topology ring_machine_;
  std::vector<Algorithm> algorithms_;
  std::map<std::string, std::vector<Measured>> seconds_;  // by algorithm
  std::map<int, plan::LinkCost> costs_;                   // by ranks: fitted to what they measured
};

}  // namespace

void run_lab_collectives(Lab& lab) {
  CollectivesLab(lab).run();
}

}  // namespace yoke::cli
