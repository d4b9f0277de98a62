#include "cli/lab_staleness.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/ps_simulation.h"

namespace yoke::cli {

const std::vector<LabOption> kStalenessOptions = {
    {"--workers", "8", "4", "of the histograms"},
    {"--k", "4", "2", "of the histograms: gradients per update"},
    {"--up-to", "64", "16", "largest number of workers of the curves"},
    {"--delay", "exp:10ms", "exp:10ms", "time of a minibatch: exp:10ms shifted_exp:5ms,5ms pareto:1ms,3"},
    {"--lr", "0.1", "0.1", "learning rate of the curves over workers"},
    {"--updates", "50000", "3000", "measured, per point"},
};

namespace {

constexpr double kNoise = 1;
constexpr double kTooHigh = 1e3;  // a loss from here on is divergence
constexpr double kRates[] = {0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4};

class StalenessLab {
 public:
  explicit StalenessLab(Lab& lab)
      : lab_(lab),
        workers_(lab.values.integer("--workers", 2, 256)),
        k_(lab.values.integer("--k", 1, workers_)),
        up_to_(lab.values.integer("--up-to", 2, 1024)),
        updates_(lab.values.integer("--updates", 100, 10'000'000)),
        lr_(lab.values.number("--lr", 1e-6, 1.9)),
        law_(plan::parse_delay_law(lab.values.text("--delay"))) {
    if (!(law_.mean(0) > 0))
      throw ConfigError("--delay {}: expected a law with a time of its own, such as exp:10ms.",
                        lab.values.text("--delay"));
    exponential_ = law_.kind == plan::DelayLaw::Kind::kExp;
  }

  void run() {
    lab_.page.title = "Staleness";
    lab_.page.about = fmt::format(
        "On a virtual clock; the time of a minibatch is {}. A gradient is as stale as the number of updates "
        "between "
        "the moment its worker fetched the parameters and the update that uses it.",
        lab_.values.text("--delay"));
    lab_.expect(std::size(kRules) + 4);
    lab_.page.section(fmt::format("How stale? {} workers, K = {}", workers_, k_));
    for (const char* rule : kRules) lab_.part(rule, [&] { histogram_of(rule); });
    report::LabTable table{{"rule", "mean", "mean, theory", "fresh", "fresh, theory"}, {}};
    for (const auto& row : lab_.document["results"]) {
      auto cell = [&](const char* key, bool percent) {
        if (!row.contains(key)) return std::string("–");
        const double value = row[key];
        return percent ? fmt::format("{:.1f} %", 100 * value) : fmt::format("{:.4g}", value);
      };
      table.rows.push_back({row["policy"], cell("mean", false), cell("mean_theory", false),
                            cell("fresh", true), cell("fresh_theory", true)});
    }
    table.notes = {
        "The means (P-K)/K for k_async and (P-1)/K for k_batch_async hold for any independent delays. The "
        "distributions that are drawn dashed need exponential ones: for k_async P(s) = (K/P)(1-K/P)^s."};
    lab_.show(table);
    lab_.page.section("What does it cost?");
    lab_.page.paragraph(
        "F(w) = w²/2 with gradient noise N(0, 1). Each point is the mean loss long after the start. A point "
        "that is "
        "missing diverged.");
    lab_.part("loss against workers", [&] { over_workers(); });
    lab_.part("loss against staleness", [&] { over_staleness(); });
    lab_.part("loss against the learning rate", [&] { over_rates(); });
    lab_.part("one worker", [&] { one_worker(); });
  }

 private:
  static constexpr const char* kRules[] = {"async", "k_async", "k_batch_async", "ssp"};

  sim::PsSimulation simulation(const std::string& rule, int workers, int64_t k) const {
    sim::PsSimulation s;
    s.policy.rule = plan::parse_rule(rule);
    s.policy.workers = workers;
    if (plan::traits_of(s.policy.rule).k == plan::RuleTraits::kGiven) s.policy.k = k;
    if (plan::traits_of(s.policy.rule).gated) s.policy.max_delay = 2;
    s.law = law_;
    s.updates = updates_;
    return s;
  }

  // P(s); empty: no formula.
  std::vector<double> theory(const std::string& rule, size_t bins) const {
    const bool geometric = rule == "async" || rule == "k_async";
    if (!exponential_ || !geometric) return {};
    const double fresh = static_cast<double>(rule == "async" ? 1 : k_) / workers_;
    std::vector<double> share;
    for (size_t s = 0; s < bins; ++s) share.push_back(fresh * std::pow(1 - fresh, static_cast<double>(s)));
    return share;
  }

  void histogram_of(const std::string& rule) {
    const sim::PsOutcome outcome = sim::simulate_ps(simulation(rule, workers_, k_));
    const double all = static_cast<double>(outcome.gradients), k = rule == "async" ? 1 : k_, p = workers_;
    size_t bins = 0;  // until nearly all gradients are counted
    for (double counted = 0; bins < outcome.staleness.size() && counted < 0.995 * all; ++bins)
      counted += static_cast<double>(outcome.staleness[bins]);
    bins = std::max<size_t>(bins, 6);
    report::LineChart chart{.title = "Staleness under " + rule,
                            .x_label = "staleness, updates",
                            .y_label = "share of gradients",
                            .unit = report::Unit::kPercent,
                            .from_zero = true};
    report::Series measured{.name = "simulated"}, law{.name = "theory", .colour = 2, .theory = true};
    for (size_t s = 0; s < bins; ++s)
      measured.points.push_back({static_cast<double>(s), s < outcome.staleness.size()
                                                             ? static_cast<double>(outcome.staleness[s]) / all
                                                             : 0});
    const std::vector<double> expected = theory(rule, bins);
    for (size_t s = 0; s < expected.size(); ++s) law.points.push_back({static_cast<double>(s), expected[s]});
    chart.series.push_back(std::move(measured));
    if (!expected.empty()) chart.series.push_back(std::move(law));
    lab_.page.add({"staleness_" + rule, fmt::format("{}: {:.3g} on average", rule, outcome.mean_staleness),
                   report::to_svg(chart)});
    lab_.result({{"policy", rule},
                 {"workers", workers_},
                 {"k", plan::effective_k(simulation(rule, workers_, k_).policy)},
                 {"mean", outcome.mean_staleness},
                 {"fresh", outcome.fresh()},
                 {"histogram", outcome.staleness}});
    nlohmann::json& row = lab_.document["results"].back();
    if (rule == "async" || rule == "k_async") row["mean_theory"] = (p - k) / k;
    if (rule == "k_batch_async") row["mean_theory"] = (p - 1) / k;
    if (!expected.empty()) row["fresh_theory"] = expected[0];
    if (rule != "k_batch_async" || !exponential_) return;
    double sum = 0;
    for (int r = 1; r <= k_; ++r) sum += std::pow(1 - 1 / p, r);
    row["fresh_theory"] = 1 - sum / k;
  }

  struct LongRun {
    double loss = NAN;  // NaN: it diverges
    double staleness = 0;
  };

  double floor_of(int workers, double lr, bool inverse) const { return long_run(workers, lr, inverse).loss; }

  LongRun long_run(int workers, double lr, bool inverse) const {
    sim::PsSimulation s = simulation(workers == 1 ? "sync" : "async", workers, 1);
    s.objective = plan::Quadratic{kNoise, lr};
    s.inverse_staleness = inverse;
    s.dimensions = 4;
    s.warm_up = static_cast<int64_t>(std::min(20.0 * workers / lr, 1e6));
    try {
      const sim::PsOutcome outcome = sim::simulate_ps(s);
      return {*outcome.loss_floor < kTooHigh ? *outcome.loss_floor : NAN, outcome.mean_staleness};
    } catch (const ConfigError&) {
      return {};  // the iterates overflowed
    }
  }

  void over_workers() {
    report::LineChart chart{.title = "Loss against workers",
                            .x_label = "workers",
                            .y_label = "long-run loss",
                            .log = true,
                            .log_x = true};
    report::Series full{.name = "async"}, inverse{.name = "stale_step = inverse", .colour = 2};
    report::Series one{.name = "η/(2(2-η))", .colour = 6, .theory = true};
    for (int workers = 2; workers <= up_to_; workers *= 2) {
      const double x = workers, plain = floor_of(workers, lr_, false),
                   weighted = floor_of(workers, lr_, true);
      if (std::isfinite(plain)) full.points.push_back({x, plain});
      if (std::isfinite(weighted)) inverse.points.push_back({x, weighted});
      one.points.push_back({x, lr_ / (2 * (2 - lr_))});
      lab_.document["loss_by_workers"].push_back({{"workers", workers},
                                                  {"full", plain},
                                                  {"inverse", weighted},
                                                  {"synchronous", one.points.back().y}});
    }
    chart.series = {full, inverse, one};
    lab_.page.add(
        {"loss_workers", fmt::format("Loss against workers, learning rate {}", lr_), report::to_svg(chart),
         "More workers: staler gradients, a higher floor. Dashed: the floor of one worker, η/(2(2-η))."});
  }

  // More workers make gradients staler; nothing else changes along a curve.
  void over_staleness() {
    report::LineChart chart{.title = "Loss against staleness",
                            .x_label = "mean staleness, updates",
                            .y_label = "long-run loss",
                            .log = true,
                            .log_x = true,
                            .whole_x = false};
    double most = 1;
    for (double lr : {lr_ / 2, lr_, 2 * lr_}) {
      report::Series series{.name = fmt::format("η = {:g}", lr),
                            .colour = static_cast<int>(chart.series.size()) + 1};
      for (int workers = 2; workers <= up_to_; workers *= 2) {
        const LongRun run = long_run(workers, lr, /*inverse=*/false);
        if (std::isfinite(run.loss)) {
          series.points.push_back({run.staleness, run.loss});
          most = std::max(most, run.staleness);
        }
        lab_.document["loss_by_staleness"].push_back(
            {{"workers", workers}, {"lr", lr}, {"staleness", run.staleness}, {"loss", run.loss}});
      }
      chart.series.push_back(std::move(series));
    }
    chart.series.push_back({.name = fmt::format("fresh, η = {:g}", lr_),
                            .points = {{1, lr_ / (2 * (2 - lr_))}, {most, lr_ / (2 * (2 - lr_))}},
                            .colour = 6,
                            .theory = true});
    lab_.page.add({"loss_staleness", "Loss against staleness", report::to_svg(chart),
                   "Asynchronous workers, 2 to the largest number. A curve that ends diverges with staler "
                   "gradients: the product of learning rate and staleness is what counts. Dashed: fresh "
                   "gradients, η/(2(2-η))."});
  }

  void over_rates() {
    report::LineChart chart{.title = "Loss against the learning rate",
                            .x_label = "learning rate",
                            .y_label = "long-run loss",
                            .log = true,
                            .log_x = true,
                            .whole_x = false};
    report::Series full{.name = "async"}, inverse{.name = "stale_step = inverse", .colour = 2};
    report::Series one{.name = "one worker, η/(2(2-η))", .colour = 6, .theory = true};
    for (double lr : kRates) {
      const double plain = floor_of(workers_, lr, false), weighted = floor_of(workers_, lr, true);
      if (std::isfinite(plain)) full.points.push_back({lr, plain});
      if (std::isfinite(weighted)) inverse.points.push_back({lr, weighted});
      one.points.push_back({lr, lr / (2 * (2 - lr))});
      lab_.document["loss_by_rate"].push_back({{"lr", lr}, {"full", plain}, {"inverse", weighted}});
    }
    chart.series = {full, inverse, one};
    lab_.page.add(
        {"loss_rate", fmt::format("Loss against the learning rate, {} workers", workers_),
         report::to_svg(chart),
         "With stale gradients the largest stable rate falls. Weighting a gradient of staleness s by 1/s "
         "(ps.stale_step = \"inverse\") restores it, at the price of smaller steps."});
  }

  void one_worker() {
    const double loss = floor_of(1, lr_, false), expected = lr_ / (2 * (2 - lr_));
    lab_.document["one_worker"] = {{"loss", loss}, {"theory", expected}};
    lab_.page.result =
        fmt::format("One worker settles at a loss of {:.4g} (theory {:.4g}), {} asynchronous ones at {:.4g}.",
                    loss, expected, workers_, floor_of(workers_, lr_, false));
  }

  Lab& lab_;
  const int workers_, k_, up_to_, updates_;
  const double lr_;
  const plan::DelayLaw law_;
  bool exponential_ = false;
};

}  // namespace

void run_lab_staleness(Lab& lab) {
  StalenessLab(lab).run();
}

}  // namespace yoke::cli
