// Every run trains one model on one device with a batch size and a learning rate. The theory is that of
// McCandlish et al. 2018: with a gradient noise scale of B_noise samples, a loss is reached in
// S(B) = S_min (1 + B_noise / B) steps, so that batches beyond B_noise hardly save steps.
#include "cli/lab_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/lab_noise.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/metrics/quantiles.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kBatchOptions = {
    {"--file", "", "", "configuration to train [a small GPT-2 on synthetic tokens]"},
    {"--batches", "2,8,32,128", "8,32", "batch sizes"},
    {"--lr", "0.05", "0.1", "learning rate of the smallest batch, for the rules"},
    {"--factors", "0.25,1,4,16", "1,4", "other learning rates, in multiples of --lr"},
    {"--epochs", "2", "0.5", "of each run"},
    {"--warmup", "0.5", "0.1", "epochs of warm-up, for the rule with it"},
};

namespace {

// One of ten tokens is random: the loss has a floor, and gradients have noise.
constexpr const char* kBatchRecipe = R"([model]
name = "gpt2"
layers = 1
heads = 2
width = 32
vocabulary = 64
positions = 32

[data]
name = "synthetic"
samples = 4096

[train]
optimizer = "sgd"
momentum = 0.0
threads = 1
)";

constexpr double kCurvePoints = 60;    // of a run: what a loss is averaged over
constexpr double kFinest = 32;         // samples between two records, so that steps to a loss are exact
constexpr double kLeastSteps = 20;     // to a loss, for the same
constexpr size_t kLeastBatches = 3;    // sizes that reach a loss, for the critical batch size there
constexpr int kNoiseRuns = 3;          // with different samples; --quick: 1
constexpr double kTargetSlack = 1.02;  // times the worst of the best losses: the target
constexpr double kFilesSamples = 5e4;  // assumed of a data set in files

const char* const kRateRules[] = {"constant", "linear", "warmup"};

struct Trial {
  int batch = 0;
  double lr = 0;
  bool warm = false;
  std::vector<metrics::Record> records = {};
  bool diverged = false;

  std::string name() const { return fmt::format("batch{}_lr{:g}{}", batch, lr, warm ? "_warmup" : ""); }
  // A loss is the mean of the last 1/kCurvePoints of the run.
  void average() {
    const auto reach = static_cast<size_t>(std::max(1.0, static_cast<double>(records.size()) / kCurvePoints));
    for (size_t i = records.size(); i-- > 0;) {
      const size_t count = std::min(reach, i + 1);
      double sum = 0;
      for (size_t k = 0; k < count; ++k) sum += records[i - k].loss;
      records[i].loss = sum / static_cast<double>(count);
    }
  }
  double loss() const { return diverged || records.empty() ? std::nan("") : end_loss(records); }
  const metrics::Record* reaches(double target) const {
    for (const metrics::Record& record : records)
      if (record.loss <= target) return &record;
    return nullptr;
  }
};

class BatchLab {
 public:
  explicit BatchLab(Lab& lab)
      : lab_(lab),
        batches_(lab.values.integers("--batches", 1, 1 << 20)),
        factors_(lab.values.numbers("--factors", 1e-6, 1e6)),
        lr_(lab.values.number("--lr", 1e-9, 1e6)),
        epochs_(lab.values.number("--epochs", 1e-3, 1e6)),
        file_(recipe_of(lab, lab.values.text("--file"), kBatchRecipe)) {
    std::sort(batches_.begin(), batches_.end());
    batches_.erase(std::unique(batches_.begin(), batches_.end()), batches_.end());
    for (int batch : batches_) {
      for (double factor : factors_) plan(batch, lr_ * factor, false);
      for (const char* rule : kRateRules) plan(batch, rate_of(rule, batch), rule == kRateRules[2]);
    }
    samples_ = samples_of(training_of(trials_.front()).config().data);
    for (const Trial& trial : trials_) training_of(trial);
    noisy_batch_ = std::max(2, batches_[(batches_.size() - 1) / 2]);
  }

  void run() {
    lab_.page.title = "Batch size and learning rate";
    lab_.page.about = fmt::format(
        "{} a run, one device, a constant learning rate. Rules: the same rate for every batch size; "
        "the "
        "rate of the smallest, {:g}, times the growth of the batch (linear); the same with a warm-up "
        "of {}.",
        counted(lab_.values.text("--epochs"), "epoch"), lr_, counted(lab_.values.text("--warmup"), "epoch"));
    const int noise_runs = lab_.quick ? 1 : kNoiseRuns;
    lab_.expect(trials_.size() + static_cast<size_t>(noise_runs));
    for (Trial& trial : trials_) lab_.part(trial.name(), [&] { train(trial); });
    for (int seed = 1; seed <= noise_runs; ++seed)
      lab_.part(fmt::format("noise scale, 2 ranks, seed {}", seed), [&] { measure_noise(seed); });
    find_noise();
    find_target();
    lab_.page.section("Against epochs and time");
    for (const char* rule : kRateRules) lab_.page.add(against_epochs(rule));
    lab_.page.add({"time_linear", "linear rule, against time", against_time(/*best=*/false),
                   "The same epochs against the clock: a large batch needs fewer, longer steps."});
    lab_.page.add({"time_best", "best rate of each batch size, against time", against_time(/*best=*/true),
                   "Small batches make progress with every sample, large ones use the processor better."});
    lab_.page.section("Which learning rate?");
    lab_.page.add(
        {"rates", "Loss at the end against the learning rate", against_rates(),
         "Dashed: the rate of the linear rule. Small batches need lower rates; large ones waste their "
         "steps with them."});
    lab_.page.section("Where returns diminish");
    lab_.page.add({"steps", "Steps to the target", steps_to_target(),
                   "The best rate of each batch size. Dashed: S_min (1 + B_noise / B) with the noise scale "
                   "that is measured at that loss."});
    lab_.page.add(
        {"noise", "Gradient noise scale along training", noise_curve(),
         fmt::format(
             "B_noise = tr Σ / |G|², from the gradient norms of one rank's batch b and of both "
             "together, B = {}: |G|² = (B |G_B|² - b |G_b|²) / (B - b), "
             "tr Σ = (|G_b|² - |G_B|²) / (1/b - 1/B). Median of {}. Dashed: the critical "
             "batch size that the runs above show at the same loss, from S_min (1 + B_crit / B) fitted "
             "to their steps. It grows as the loss falls: late in training larger batches pay.",
             noisy_batch_, counted(fmt::format("{}", noises_.size()), "run"))});
    for (const Trial& trial : trials_) add_result(trial);
    table();
  }

 private:
  double rate_of(const std::string& rule, int batch) const {
    return rule == "constant" ? lr_ : lr_ * batch / batches_.front();
  }

  void plan(int batch, double lr, bool warm) {
    if (find(batch, lr, warm) == nullptr) trials_.push_back({batch, lr, warm});
  }

  const Trial* find(int batch, double lr, bool warm) const {
    for (const Trial& trial : trials_)
      if (trial.batch == batch && trial.warm == warm && std::abs(trial.lr - lr) <= 1e-9 * lr) return &trial;
    return nullptr;
  }

  LabTraining::Settings settings_of(int batch, double lr, bool warm) const {
    LabTraining::Settings settings = {{"data.batch_size", fmt::format("{}", batch)},
                                      {"train.lr", fmt::format("{}", lr)},
                                      {"train.epochs", fmt::format("{}", epochs_)},
                                      {"train.steps", "0"},
                                      {"train.evaluate", "false"}};
    if (warm) settings.emplace_back("train.warmup_epochs", lab_.values.text("--warmup"));
    return settings;
  }

  std::string record_every(int batch) const {
    const double coarse = samples_ / kCurvePoints / batch;
    return fmt::format("{:.0f}", std::max(1.0, std::min(coarse, std::floor(kFinest / batch))));
  }

  LabTraining training_of(const Trial& trial) const {
    LabTraining::Settings settings = settings_of(trial.batch, trial.lr, trial.warm);
    settings.emplace_back("out.log_every", record_every(trial.batch));
    return {lab_, file_, trial.name(), 1, settings};
  }

  // Of a run.
  double samples_of(const data::DataOptions& data) const {
    if (data.limit > 0) return epochs_ * static_cast<double>(data.limit);
    return epochs_ * (data.name == "synthetic" ? static_cast<double>(data.samples) : kFilesSamples);
  }

  void train(Trial& trial) {
    const LabTraining training = training_of(trial);
    try {
      trial.records = training.run().records;
      trial.average();
    } catch (const Diverged&) {
      trial.diverged = true;
    }
  }

  // A point: epoch and noise scale; beside it the loss.
  struct Noise {
    std::vector<report::Point> scale;
    std::vector<double> loss;
  };

  void measure_noise(int seed) {
    LabTraining::Settings settings =
        settings_of(std::max(1, noisy_batch_ / 2), rate_of("linear", noisy_batch_), false);
    settings.emplace_back("out.log_every", record_every(noisy_batch_));
    settings.emplace_back("train.seed", fmt::format("{}", seed));
    try {
      Trial run{.batch = noisy_batch_};
      run.records = LabTraining(lab_, file_, fmt::format("noise_seed{}", seed), 2, settings).run().records;
      run.average();
      Noise noise;
      for (const metrics::Record& record : run.records) {
        const double scale = record.noise_scale.value_or(std::nan(""));
        noise.scale.push_back({record.epoch, scale > 0 ? scale : std::nan("")});
        noise.loss.push_back(record.loss);
      }
      noises_.push_back(std::move(noise));
    } catch (const Diverged&) {
      log::warn("lab batch: no noise scale: its run, with the rate of the linear rule, diverged");
    }
  }

  // Medians over the runs, and what training at the same loss shows.
  void find_noise() {
    if (noises_.empty()) return;
    for (size_t i = 0; i < noises_[0].scale.size(); ++i) {
      std::vector<double> scales, losses;
      for (const Noise& one : noises_) {
        if (i >= one.scale.size()) continue;
        scales.push_back(one.scale[i].y);
        losses.push_back(one.loss[i]);
      }
      const double epoch = noises_[0].scale[i].x, scale = metrics::median(scales);
      if (!std::isfinite(scale)) continue;
      noise_.push_back({epoch, scale});
      noise_losses_.push_back(metrics::median(losses));
      const auto fit = fit_noise(steps_to(noise_losses_.back()));
      critical_.push_back({epoch, fit ? fit->critical_batch : std::nan("")});
    }
  }

  // Of each batch size with its best rate for this loss; empty: too few reach it.
  std::vector<StepsToLoss> steps_to(double loss) const {
    std::vector<StepsToLoss> steps;
    for (int batch : batches_)
      if (const Trial* trial = fastest(batch, loss))
        steps.push_back({static_cast<double>(batch), static_cast<double>(trial->reaches(loss)->step)});
    const bool early = std::ranges::any_of(steps, [](const auto& one) { return one.steps < kLeastSteps; });
    if (early || steps.size() < std::min(kLeastBatches, batches_.size())) steps.clear();
    return steps;
  }

  const Trial* best(int batch) const {
    const Trial* best = nullptr;
    for (const Trial& trial : trials_) {
      if (trial.batch != batch || !std::isfinite(trial.loss())) continue;
      if (best == nullptr || trial.loss() < best->loss()) best = &trial;
    }
    return best;
  }

  // Of the runs of this batch size, the one that reaches the target in the fewest steps.
  const Trial* fastest(int batch, double target) const {
    const Trial* fastest = nullptr;
    for (const Trial& trial : trials_) {
      const metrics::Record* record = trial.batch == batch ? trial.reaches(target) : nullptr;
      if (record != nullptr && (fastest == nullptr || record->step < fastest->reaches(target)->step))
        fastest = &trial;
    }
    return fastest;
  }

  void find_target() {
    for (int batch : batches_)
      if (const Trial* trial = best(batch)) target_ = std::max(target_, trial->loss() * kTargetSlack);
    // Where its runs reach the target; otherwise at their end.
    const auto reached = std::ranges::find_if(noise_losses_, [&](double loss) { return loss <= target_; });
    if (!noise_.empty())
      noise_scale_ =
          noise_[std::min(noise_.size() - 1, static_cast<size_t>(reached - noise_losses_.begin()))].y;
    lab_.document["target_loss"] = target_;
    if (noise_scale_ > 0) lab_.document["noise_scale"] = noise_scale_;
    if (const auto fit = fit_noise(steps_to(target_))) lab_.document["critical_batch"] = fit->critical_batch;
    for (size_t i = 0; i < noise_.size(); ++i) {
      nlohmann::json point = {noise_[i].x, noise_[i].y, nullptr};
      if (std::isfinite(critical_[i].y)) point[2] = critical_[i].y;
      lab_.document["noise"].push_back(std::move(point));
    }
  }

  static report::Series curve(const Trial& trial, int colour, bool time) {
    report::Series series{.name = fmt::format("batch {}", trial.batch), .colour = colour};
    for (const metrics::Record& record : trial.records)
      series.points.push_back({time ? record.time : record.epoch, record.loss});
    return series;
  }

  report::LabFigure against_epochs(const std::string& rule) const {
    report::LineChart chart{
        .title = "Loss against epochs, " + rule, .x_label = "epochs", .y_label = "loss", .whole_x = false};
    int colour = 0;
    for (int batch : batches_) {
      ++colour;
      if (const Trial* trial = find(batch, rate_of(rule, batch), rule == kRateRules[2]))
        chart.series.push_back(curve(*trial, colour, /*time=*/false));
    }
    const std::map<std::string, std::string> told = {
        {"constant", "The same rate: larger batches make fewer steps and fall behind."},
        {"linear", "The rate grows with the batch: the curves fall together, until the rate is too high."},
        {"warmup", "The linear rule after a warm-up, which the highest rates need."}};
    return {"epochs_" + rule, rule == kRateRules[2] ? "linear rule with warm-up" : rule + " rate",
            report::to_svg(chart), told.at(rule)};
  }

  std::string against_time(bool best) const {
    report::LineChart chart{
        .title = best ? "Loss against time, best rates" : "Loss against time, linear rule",
        .x_label = "time",
        .y_label = "loss",
        .whole_x = false,
        .x_unit = report::Unit::kSeconds};
    int colour = 0;
    for (int batch : batches_) {
      ++colour;
      const Trial* trial = best ? this->best(batch) : find(batch, rate_of("linear", batch), false);
      if (trial != nullptr) chart.series.push_back(curve(*trial, colour, /*time=*/true));
    }
    return report::to_svg(chart);
  }

  std::string against_rates() const {
    report::LineChart chart{.title = "Loss at the end against the learning rate",
                            .x_label = "learning rate",
                            .y_label = "loss at the end",
                            .log_x = true,
                            .whole_x = false};
    double lowest = 1e300, highest = 0;
    for (const Trial& trial : trials_)
      if (std::isfinite(trial.loss())) {
        lowest = std::min(lowest, trial.loss());
        highest = std::max(highest, trial.loss());
      }
    int colour = 0;
    for (int batch : batches_) {
      report::Series series{.name = fmt::format("batch {}", batch), .colour = ++colour};
      for (const Trial& trial : trials_)
        if (trial.batch == batch && !trial.warm) series.points.push_back({trial.lr, trial.loss()});
      std::sort(series.points.begin(), series.points.end(), [](auto& a, auto& b) { return a.x < b.x; });
      chart.series.push_back(std::move(series));
      const double rule = rate_of("linear", batch);
      chart.series.push_back({.name = colour == 1 ? "linear rule" : "",
                              .points = {{rule, lowest}, {rule, highest}},
                              .colour = colour,
                              .theory = true});
    }
    return report::to_svg(chart);
  }

  std::string steps_to_target() const {
    report::LineChart chart{.title = "Steps to the target",
                            .x_label = "batch size",
                            .y_label = "steps",
                            .log = true,
                            .log_x = true};
    report::Series measured{.name = "measured"}, theory{.name = "theory", .colour = 6, .theory = true};
    double sum = 0;
    for (int batch : batches_)
      if (const Trial* trial = fastest(batch, target_)) {
        const auto steps = static_cast<double>(trial->reaches(target_)->step);
        measured.points.push_back({static_cast<double>(batch), steps});
        sum += std::log(steps / (1 + noise_scale_ / batch));
      }
    if (noise_scale_ > 0 && !measured.points.empty()) {
      const double least = std::exp(sum / static_cast<double>(measured.points.size()));
      for (double batch = batches_.front(); batch < batches_.back(); batch *= 1.25)
        theory.points.push_back({batch, least * (1 + noise_scale_ / batch)});
      theory.points.push_back(
          {static_cast<double>(batches_.back()), least * (1 + noise_scale_ / batches_.back())});
    }
    chart.series = {measured, theory};
    return report::to_svg(chart);
  }

  std::string noise_curve() const {
    report::LineChart chart{.title = "Gradient noise scale",
                            .x_label = "epochs",
                            .y_label = "samples",
                            .log = true,
                            .whole_x = false};
    for (const Noise& one : noises_)
      if (noises_.size() > 1) chart.series.push_back({.points = one.scale, .faint = true});
    chart.series.push_back({.name = "B_noise, measured", .points = noise_});
    report::Series theory{.name = "B_crit, from steps to a loss", .colour = 6, .theory = true};
    for (const report::Point& point : critical_)
      if (std::isfinite(point.y)) theory.points.push_back(point);
    chart.series.push_back(std::move(theory));
    return report::to_svg(chart);
  }

  void add_result(const Trial& trial) {
    nlohmann::json row = {
        {"batch", trial.batch}, {"lr", trial.lr}, {"warmup", trial.warm}, {"diverged", trial.diverged}};
    if (std::isfinite(trial.loss())) row["final_loss"] = trial.loss();
    if (!trial.records.empty()) row["seconds"] = trial.records.back().time;
    if (const metrics::Record* record = trial.reaches(target_)) {
      row["steps_to_target"] = record->step;
      row["epochs_to_target"] = record->epoch;
      row["seconds_to_target"] = record->time;
    }
    lab_.result(std::move(row));
  }

  void table() {
    report::LabTable table{{"batch", "best rate", "loss", "constant rate", "linear", "warm-up",
                            "steps to target", "epochs", "time"},
                           {}};
    auto loss = [](const Trial* trial) {
      return trial == nullptr               ? "–"
             : std::isfinite(trial->loss()) ? fmt::format("{:.3f}", trial->loss())
                                            : "diverged";
    };
    for (int batch : batches_) {
      const Trial *top = best(batch), *first = fastest(batch, target_);
      const metrics::Record* record = first == nullptr ? nullptr : first->reaches(target_);
      std::vector<std::string> row = {fmt::format("{}", batch),
                                      top == nullptr ? "–" : fmt::format("{:g}", top->lr), loss(top)};
      for (const char* rule : kRateRules)
        row.push_back(loss(find(batch, rate_of(rule, batch), rule == kRateRules[2])));
      row.push_back(record == nullptr ? "never" : fmt::format("{}", record->step));
      row.push_back(record == nullptr ? "–" : fmt::format("{:.2f}", record->epoch));
      row.push_back(record == nullptr ? "–" : format_duration(record->time));
      table.rows.push_back(std::move(row));
    }
    table.notes = {
        fmt::format("Loss: mean of the last tenth of a run. Target: {:.3f}, which every batch size reaches "
                    "with its best rate; steps, epochs and time are of the run that needs the fewest "
                    "steps.",
                    target_)};
    if (noise_scale_ > 0)
      table.notes.push_back(fmt::format("Gradient noise scale at the target: {:.1f} samples.", noise_scale_));
    lab_.show(table);
  }

  Lab& lab_;
  std::vector<int> batches_;
  const std::vector<double> factors_;
  const double lr_, epochs_;
  const std::string file_;
  std::vector<Trial> trials_;
  int noisy_batch_ = 0;
  double samples_ = 0;                           // of a run
  std::vector<Noise> noises_;                    // of each run
  std::vector<double> noise_losses_;             // beside noise_
  std::vector<report::Point> noise_, critical_;  // against epochs, as many; critical_ has gaps
  double noise_scale_ = 0, target_ = 0;
};

}  // namespace

void run_lab_batch(Lab& lab) {
  BatchLab(lab).run();
}

}  // namespace yoke::cli
