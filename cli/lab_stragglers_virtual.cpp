#include "cli/lab_stragglers_virtual.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/plan/policies/adasync.h"
#include "yoke/report/lanes_svg.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/ps_simulation.h"

namespace yoke::cli {
namespace {

constexpr double kCompute = 10e-3;  // of a minibatch, under laws that are no time by themselves
constexpr double kStep = 0.1, kGradientNoise = 1, kStart = 5;
constexpr double kWindow = 6;        // length of the timelines, in mean minibatches
constexpr double kSyncUpdates = 45;  // length of the curves: so many updates of K-sync with all workers
constexpr size_t kPoints = 160;      // of a curve
constexpr double kTarget = 0.05;     // loss, of the table
constexpr double kCheckEvery = 3;    // AdaSync looks at the loss every so many mean minibatches
constexpr const char* kAdaptive = "AdaSync";

class VirtualLab {
 public:
  VirtualLab(Lab& lab, const VirtualRules& setting) : lab_(lab), setting_(setting) {
    law_ = plan::parse_delay_law(setting.delay);
    compute_ = law_.mean(0) > 0 && setting.delay_workers.empty() ? 0 : kCompute;
    mean_ = compute_ + law_.mean(compute_);
    exponential_ = law_.kind == plan::DelayLaw::Kind::kExp && compute_ == 0;
  }

  nlohmann::json run() {
    lab_.page.section("What every worker does");
    lab_.page.paragraph(fmt::format(
        "{} workers under {}. K = {} where a rule has one. A violet line is an update of the parameters.",
        setting_.workers, setting_.delay, setting_.k));
    lab_.part("timelines", [&] {
      for (const std::string& rule : setting_.rules) timeline(rule);
    });
    lab_.page.section("Error against time, for every K");
    lab_.page.paragraph(fmt::format(
        "F(w) = |w|²/2 with gradient noise N(0, {}), learning rate {}, the same for all rules and every K. "
        "Small K: fast at first, and a high floor. Large K: slow, and a low floor. {} raises K as the "
        "loss falls.",
        kGradientNoise, kStep, kAdaptive));
    for (const std::string& rule : setting_.rules)
      if (has_k(rule)) lab_.part(rule + " for every K", [&] { sweep(rule); });
    for (const std::string& rule : setting_.rules)
      if (!has_k(rule)) lab_.part(rule, [&] { rows_.push_back(measure(rule, 0)); });
    against_k();
    table();
    return rows_;
  }

 private:
  static bool has_k(const std::string& rule) {
    return plan::traits_of(plan::parse_rule(rule)).k == plan::RuleTraits::kGiven;
  }

  std::vector<int64_t> every_k() const {
    std::vector<int64_t> all;
    for (int64_t k = 1; k < setting_.workers; k *= 2) all.push_back(k);
    all.push_back(setting_.workers);
    return all;
  }

  sim::PsSimulation simulation(const std::string& rule, int64_t k) const {
    sim::PsSimulation s;
    s.policy.rule = plan::parse_rule(rule);
    s.policy.workers = setting_.workers;
    s.policy.k = k;
    if (plan::traits_of(s.policy.rule).gated) s.policy.max_delay = setting_.max_delay;
    s.law = law_;
    s.slow = plan::parse_slow_workers("--delay-workers", setting_.delay_workers, setting_.workers);
    s.compute = compute_;
    s.objective = plan::Quadratic{kGradientNoise, kStep};
    s.start = kStart;
    s.warm_up = 0;
    return s;
  }

  void timeline(const std::string& rule) {
    sim::PsSimulation s = simulation(rule, has_k(rule) ? setting_.k : 0);
    const double from = 4 * mean_, to = from + kWindow * mean_;
    report::Lanes lanes;
    for (int i = 0; i < setting_.workers; ++i) lanes.rows.push_back(fmt::format("{}", i));
    lanes.end = to - from;
    double last = 0;
    s.on_minibatch = [&](const sim::PsMinibatch& one) {
      last = one.end;
      if (one.end <= from || one.start >= to) return;
      report::LaneSpan span{one.worker, std::max(one.start, from) - from, std::min(one.end, to) - from};
      span.look = one.cancelled        ? report::Look::kGrey
                  : one.staleness == 0 ? report::Look::kGreen
                                       : report::Look::kOrange;
      span.shade = one.cancelled ? 2 : 0;
      if (!one.cancelled && one.staleness > 0) span.text = fmt::format("{}", one.staleness);
      span.tooltip = one.cancelled ? "cancelled" : fmt::format("staleness {}:", one.staleness);
      lanes.spans.push_back(std::move(span));
    };
    s.on_update = [&](double seconds, double) {
      last = seconds;
      if (seconds >= from && seconds <= to) lanes.marks.push_back(seconds - from);
      return int64_t{0};
    };
    // Until the minibatches at the end of the window have ended.
    s.updates = static_cast<int64_t>((kWindow + 14) * setting_.workers);
    const sim::PsOutcome outcome = sim::simulate_ps(s);
    report::LanesPicture picture{.label = "Timeline of " + rule, .parts = {std::move(lanes)}};
    picture.legend = {{report::Look::kGreen, "fresh"}};
    if (outcome.mean_staleness > 0) picture.legend.push_back({report::Look::kOrange, "stale, by how much"});
    if (outcome.cancelled > 0) picture.legend.push_back({report::Look::kGrey, "cancelled"});
    picture.width = 540;
    picture.row = setting_.workers <= 8 ? 17 : 12;
    lab_.page.add({"timeline_" + rule, heading(rule), report::lanes_svg(picture), meaning(rule)});
  }

  std::string heading(const std::string& rule) const {
    return has_k(rule) ? fmt::format("{}, K = {}", rule, setting_.k) : rule;
  }

  static std::string meaning(const std::string& rule) {
    constexpr std::pair<const char*, const char*> kMeanings[] = {
        {"sync", "An update waits for all workers; the slowest one sets the pace."},
        {"k_sync",
         "An update takes the first K workers, the others are cancelled: nothing is stale, work is lost."},
        {"k_batch_sync", "The first K minibatches of anybody: a fast worker starts another one at once."},
        {"async", "Every gradient is an update: no worker waits, most gradients are stale."},
        {"k_async", "The first K workers of any version; they wait for each other, the others continue."},
        {"k_batch_async", "K minibatches of any workers; no worker waits and nothing is cancelled."},
        {"bounded_delay", "As async, but no worker is more than the bound ahead of the slowest."},
        {"ssp", "The same gate; every gradient is a full step."}};
    for (const auto& [name, text] : kMeanings)
      if (rule == name) return text;
    return "";
  }

  double horizon() const {
    double harmonic = 0;
    for (int i = 1; i <= setting_.workers; ++i) harmonic += 1.0 / i;
    return kSyncUpdates * (compute_ + harmonic * law_.mean(compute_)) * (lab_.quick ? 0.5 : 1);
  }

  // Loss over time, about kPoints values; `adaptive`: K follows the loss.
  std::vector<report::Point> curve(const std::string& rule, int64_t k, bool adaptive) const {
    sim::PsSimulation s = simulation(rule, k);
    s.dimensions = lab_.quick ? 16 : 64;
    const double end = horizon(), width = end / static_cast<double>(kPoints);
    const double first = kStart * kStart / 2;
    std::vector<report::Point> points = {{0, first}};
    double sum = 0, next_check = 0;
    int64_t count = 0;
    s.on_update = [&](double seconds, double loss) -> int64_t {
      sum += loss;
      ++count;
      if (seconds <= end && seconds >= points.back().x + width) {
        points.push_back({seconds, sum / static_cast<double>(count)});
        sum = 0;
        count = 0;
      }
      if (!adaptive || seconds < next_check) return 0;
      next_check = seconds + kCheckEvery * mean_;
      return plan::adasync_whole_k(s.policy.rule, setting_.workers, k, first, loss);
    };
    s.updates = std::max<int64_t>(1, static_cast<int64_t>(1.1 * end / seconds_per_update(rule, k)));
    sim::simulate_ps(s);
    return points;
  }

  double seconds_per_update(const std::string& rule, int64_t k) const {
    sim::PsSimulation s = simulation(rule, k);
    s.objective.reset();
    s.updates = 2000;
    return sim::simulate_ps(s).seconds_per_update();
  }

  static double reached(const std::vector<report::Point>& points) {
    for (const report::Point& point : points)
      if (point.y <= kTarget) return point.x;
    return -1;
  }

  nlohmann::json measure(const std::string& rule, int64_t k) {
    sim::PsSimulation s = simulation(rule, k);
    s.start = 0;
    s.dimensions = 16;
    s.warm_up = 500;
    s.updates = lab_.quick ? 1500 : 20'000;
    const sim::PsOutcome outcome = sim::simulate_ps(s);
    nlohmann::json row = {{"policy", rule},
                          {"k", plan::effective_k(s.policy)},
                          {"seconds_per_update", outcome.seconds_per_update()},
                          {"loss_floor", *outcome.loss_floor},
                          {"staleness_mean", outcome.mean_staleness},
                          {"idle_fraction", outcome.idle_fraction},
                          {"cancelled_per_update",
                           static_cast<double>(outcome.cancelled) / static_cast<double>(outcome.updates)}};
    const double seconds = reached(curve(rule, k, /*adaptive=*/false));
    if (seconds >= 0) row["seconds_to_target"] = seconds;
    return row;
  }

  void sweep(const std::string& rule) {
    report::LineChart chart{.title = rule + ": error against time",
                            .x_label = "time",
                            .y_label = "loss",
                            .log = true,
                            .whole_x = false,
                            .x_unit = report::Unit::kSeconds};
    for (int64_t k : every_k()) {
      chart.series.push_back({.name = fmt::format("K = {}", k),
                              .points = curve(rule, k, /*adaptive=*/false),
                              .colour = static_cast<int>(chart.series.size()) + 1});
      rows_.push_back(measure(rule, k));
    }
    chart.series.push_back({.name = kAdaptive, .points = curve(rule, 1, /*adaptive=*/true), .colour = 5});
    lab_.page.add({"error_" + rule, rule, report::to_svg(chart)});
  }

  // Figures over K, one curve per rule, with theory where there is a formula.
  void against_k() {
    if (std::none_of(setting_.rules.begin(), setting_.rules.end(), has_k)) return;
    const double p = setting_.workers, mean = law_.mean(compute_);
    report::LineChart floor{
        .title = "Error floor against K", .x_label = "K", .y_label = "long-run loss", .log = true};
    report::LineChart pace{.title = "Time of an update against K",
                           .x_label = "K",
                           .y_label = "time per update",
                           .unit = report::Unit::kSeconds,
                           .from_zero = true};
    int colour = 0;
    for (const std::string& rule : setting_.rules) {
      if (!has_k(rule)) continue;
      report::Series floors{.name = rule, .colour = ++colour}, paces = floors;
      for (const auto& row : rows_) {
        if (row["policy"] != rule) continue;
        floors.points.push_back({row["k"].get<double>(), row["loss_floor"].get<double>()});
        paces.points.push_back({row["k"].get<double>(), row["seconds_per_update"].get<double>()});
      }
      if (floors.points.empty()) continue;
      floor.series.push_back(std::move(floors));
      pace.series.push_back(std::move(paces));
    }
    report::Series bound{.name = "η/(2K(2-η))", .colour = 6, .theory = true};
    report::Series wait{.name = "(H_P - H_P-K)/μ", .colour = 6, .theory = true};
    report::Series batch{.name = "K/(Pμ)", .colour = 7, .theory = true};
    double harmonic = 0;
    for (int k = 1; k <= setting_.workers; ++k) {
      harmonic += 1.0 / (p - k + 1);
      bound.points.push_back(
          {static_cast<double>(k), kGradientNoise * kGradientNoise * kStep / (2 * k * (2 - kStep))});
      wait.points.push_back({static_cast<double>(k), mean * harmonic});
      batch.points.push_back({static_cast<double>(k), mean * k / p});
    }
    floor.series.push_back(std::move(bound));
    if (exponential_) {
      pace.series.push_back(std::move(wait));
      pace.series.push_back(std::move(batch));
    }
    lab_.page.section("What K buys and costs");
    lab_.page.add({"floor_k", "Error floor", report::to_svg(floor),
                   "Dashed: the floor of K-sync for this objective, η/(2K(2-η)). Staleness adds to it."});
    lab_.page.add({"pace_k", "Time of an update", report::to_svg(pace),
                   exponential_
                       ? "Dashed: the expected K-th of P exponential times (K-sync, K-async), and K/(Pμ) "
                         "(batch rules)."
                       : "There is a closed form for exponential delays only (--delay exp:10ms)."});
  }

  void table() {
    report::LabTable table{{"rule", "K", "per update", "floor", fmt::format("to loss {}", kTarget),
                            "staleness", "idle", "cancelled/update"},
                           {}};
    for (const auto& row : rows_)
      table.rows.push_back(
          {row["policy"], fmt::format("{}", row["k"].get<int64_t>()),
           format_duration(row["seconds_per_update"]), fmt::format("{:.4g}", row["loss_floor"].get<double>()),
           row.contains("seconds_to_target") ? format_duration(row["seconds_to_target"]) : "never",
           fmt::format("{:.3g}", row["staleness_mean"].get<double>()),
           fmt::format("{:.1f} %", 100 * row["idle_fraction"].get<double>()),
           fmt::format("{:.3g}", row["cancelled_per_update"].get<double>())});
    table.notes = {
        "Fixed in this comparison: objective, noise, learning rate, delays; an update uses the mean of its K "
        "gradients. A learning rate tuned for each rule lowers the floors of small K.",
        "Staleness of a gradient: updates between the moment its worker fetched the parameters and the "
        "update "
        "that uses it. Its mean is (P-K)/K for k_async and (P-1)/K for k_batch_async whatever the delays. "
        "Idle: "
        "share of the workers' time spent waiting for the rule. Floor: mean loss long after the start."};
    lab_.show(table);
  }

  Lab& lab_;
  const VirtualRules& setting_;
  plan::DelayLaw law_;
  double compute_ = 0, mean_ = 0;
  bool exponential_ = false;
  nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

nlohmann::json compare_virtual_rules(Lab& lab, const VirtualRules& setting) {
  return VirtualLab(lab, setting).run();
}

size_t virtual_parts(const VirtualRules& setting) {
  return setting.rules.size() + 1;
}

}  // namespace yoke::cli
