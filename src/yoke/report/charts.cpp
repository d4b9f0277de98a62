#include "yoke/report/charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

using metrics::Record;
using Getter = std::function<std::optional<double>(const Record&)>;

constexpr size_t kNoisy = 60;           // from here a curve is smoothed and drawn over its raw values
constexpr size_t kSmoothingShare = 60;  // neighbours on each side: this part of all points
constexpr double kLogFrom = 200;        // a range this wide is shown on a logarithmic axis
constexpr size_t kMostBars = 40;

std::vector<Point> points_of(const std::vector<Record>& records, const Getter& get) {
  std::vector<Point> points;
  for (const Record& record : records) {
    if (std::optional<double> value = get(record))
      points.push_back({static_cast<double>(record.step), *value});
  }
  return points;
}

void add_noisy(LineChart& chart, const std::string& name, std::vector<Point> points, int colour) {
  if (points.size() < kNoisy) {
    chart.series.push_back({name, std::move(points), colour});
    return;
  }
  std::vector<Point> smoothed = smooth(points, 2 + points.size() / kSmoothingShare);
  chart.series.push_back({name, std::move(points), colour, /*faint=*/true});
  chart.series.push_back({name, std::move(smoothed), colour});
}

bool wide(const std::vector<Point>& points) {
  double low = INFINITY;
  double high = 0;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) continue;
    low = std::min(low, point.y);
    high = std::max(high, point.y);
  }
  return low > 0 && high > low * kLogFrom;
}

// All charts of a run span the same steps: from 0, unless the records begin late.
void share_x_axis(LineChart& chart, const std::vector<Record>& records) {
  auto first = static_cast<double>(records.front().step);
  auto last = static_cast<double>(records.back().step);
  if (first == last) return;
  chart.x_from = first < 0.2 * last ? 0 : first;
  chart.x_to = last;
}

Figure loss(const std::vector<Record>& records, const std::vector<Record>& losses) {
  LineChart chart{.title = "Loss over the steps", .x_label = "step", .y_label = "mean loss"};
  share_x_axis(chart, records);
  std::vector<Point> train = points_of(losses, [](const Record& r) { return r.loss; });
  chart.log = wide(train);
  add_noisy(chart, "training", std::move(train), 1);
  std::vector<Point> test = points_of(records, [](const Record& r) { return r.eval_loss; });
  if (!test.empty()) chart.series.push_back({"test", std::move(test), 2});
  return {"Loss", to_svg(chart)};
}

struct Simple {
  const char* heading;
  const char* y_label;
  Unit unit;
  bool from_zero;
  bool noisy;
  int colour;
  Getter get;
};

std::optional<Figure> draw(const std::vector<Record>& records, const Simple& figure) {
  std::vector<Point> points = points_of(records, figure.get);
  if (points.empty()) return std::nullopt;
  // A quantity that was always zero was not measured in this run.
  bool nothing = std::all_of(points.begin(), points.end(), [](const Point& p) { return p.y == 0; });
  if (figure.from_zero && nothing) return std::nullopt;
  LineChart chart{.title = std::string(figure.heading) + " over the steps",
                  .x_label = "step",
                  .y_label = figure.y_label,
                  .unit = figure.unit,
                  .from_zero = figure.from_zero,
                  .log = figure.noisy && wide(points)};
  share_x_axis(chart, records);
  if (figure.noisy) {
    add_noisy(chart, figure.y_label, std::move(points), figure.colour);
  } else {
    chart.series.push_back({figure.y_label, std::move(points), figure.colour});
  }
  return Figure{figure.heading, to_svg(chart)};
}

bool has_tokens(const std::vector<Record>& records) {
  return std::any_of(records.begin(), records.end(),
                     [](const Record& r) { return r.tokens_per_s.has_value(); });
}

Simple throughput(bool tokens) {
  auto per_second = [tokens](const Record& r) {
    return tokens ? r.tokens_per_s : std::optional(r.samples_per_s);
  };
  return {"Throughput", tokens ? "tokens per second" : "samples per second", Unit::kNumber, true, true, 3,
          per_second};
}

std::vector<double> phases_of(const metrics::TimeSplit& split) {
  return {split.data, split.forward, split.backward, split.communication, split.update, split.other};
}

struct Split {
  double from;
  double to;
  std::vector<double> seconds;
};

std::vector<Split> splits_of(const std::vector<Record>& records) {
  std::vector<Split> splits;
  double before = 0;
  for (const Record& record : records) {
    auto step = static_cast<double>(record.step);
    if (record.split && step > before) splits.push_back({before, step, phases_of(*record.split)});
    before = step;
  }
  return splits;
}

// The mean of records, weighted by the steps they cover.
std::vector<double> mean_of(const Split* begin, const Split* end) {
  std::vector<double> mean(kPhases.size(), 0.0);
  double steps = 0;
  for (const Split* split = begin; split != end; ++split) {
    for (size_t i = 0; i < mean.size(); ++i) {
      double seconds = split->seconds[i];
      if (std::isfinite(seconds) && seconds > 0) mean[i] += seconds * (split->to - split->from);
    }
    steps += split->to - split->from;
  }
  for (double& seconds : mean) seconds /= steps;
  return mean;
}

// Without a last record of much fewer samples than those before it: its rate is that of the end of the run.
std::vector<Record> without_short_end(std::vector<Record> records) {
  if (records.size() < 3) return records;
  auto covered = [&](size_t i) { return records[i].samples - records[i - 1].samples; };
  const size_t last = records.size() - 1;
  if (2 * covered(last) < covered(last - 1)) records.pop_back();
  return records;
}

}  // namespace

std::optional<Figure> scaling_of(const metrics::Summary& summary) {
  if (!summary.one_device_samples_per_s || summary.world_size < 2) return std::nullopt;
  double one = *summary.one_device_samples_per_s;
  auto workers = static_cast<double>(summary.world_size);
  LineChart chart{.title = "Speed by number of workers",
                  .x_label = "workers",
                  .y_label = "samples per second",
                  .from_zero = true,
                  .series = {{"ideal", {{1, one}, {workers, one * workers}}, 4},
                             {"measured", {{1, one}, {workers, summary.samples_per_s}}, 1}}};
  return Figure{"Scaling", to_svg(chart)};
}

std::vector<Figure> figures_of(const std::vector<Record>& records, const std::vector<Record>& losses) {
  if (records.empty()) return {};
  std::vector<Figure> figures = {loss(records, losses)};
  const std::vector<Simple> rest = {
      {"Accuracy", "accuracy on the test set", Unit::kPercent, false, false, 2,
       [](const Record& r) { return r.accuracy; }},
      {"Learning rate", "rate", Unit::kNumber, true, false, 4, [](const Record& r) { return r.lr; }},
      {"Gradient norm", "norm", Unit::kNumber, true, true, 5, [](const Record& r) { return r.grad_norm; }},
      {"Loss scale", "scale", Unit::kNumber, true, false, 4, [](const Record& r) { return r.loss_scale; }},
      {"Gradient noise scale", "critical batch, samples", Unit::kNumber, true, true, 6,
       [](const Record& r) { return r.noise_scale; }},
      {"Communication", "in flight, per step", Unit::kSeconds, true, false, 6,
       [](const Record& r) { return r.comm_seconds; }},
      {"Memory", "peak so far", Unit::kBytes, true, false, 3,
       [](const Record& r) -> std::optional<double> {
         return r.memory_bytes ? std::optional(static_cast<double>(*r.memory_bytes)) : std::nullopt;
       }},
  };
  if (auto speed = draw(without_short_end(records), throughput(has_tokens(records))))
    figures.push_back(std::move(*speed));
  for (const Simple& figure : rest) {
    if (std::optional<Figure> drawn = draw(records, figure)) figures.push_back(std::move(*drawn));
  }
  return figures;
}

TimeShares time_shares(const std::vector<Record>& records) {
  const std::vector<Split> splits = splits_of(records);
  if (splits.empty()) return {};
  StackedBars chart{.title = "Step time over the run",
                    .x_label = "step",
                    .y_label = "time per step",
                    .unit = Unit::kSeconds,
                    .legend = false,  // the table beside it is the legend
                    .layers = {kPhases.begin(), kPhases.end()}};
  size_t bars = std::min(splits.size(), kMostBars);
  for (size_t i = 0; i < bars; ++i) {
    const Split* begin = splits.data() + i * splits.size() / bars;
    const Split* end = splits.data() + (i + 1) * splits.size() / bars;
    chart.bars.push_back({begin->from, (end - 1)->to, mean_of(begin, end)});
  }
  return {mean_of(splits.data(), splits.data() + splits.size()), to_svg(chart)};
}

}  // namespace yoke::report
