#include "cli/lab_pipeline_accuracy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/lab_compare_cluster.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {
namespace {

using plan::ScheduleKind;

constexpr int kMicroBatch = 32;  // of a micro-batch, and of a replica
constexpr double kShareOfBest = 0.95;
constexpr int kIdealColour = 6;

// A perceptron with at least as many layers as there are stages, whose gradient is larger than what a layer
// gives to the next.
std::string perceptron_of(int stages) {
  std::vector<std::string> sizes(static_cast<size_t>(std::max(4, stages)), "512");
  sizes.front() = "32";
  return fmt::format(R"([model]
name = "mlp"
sizes = [{}, 10]

[data]
name = "synthetic"
samples = 1024
batch_size = {}

[train]
optimizer = "sgd"
lr = 0.02
momentum = 0.0
threads = 1
)",
                     join(sizes, ", "), kMicroBatch);
}

double largest_of(const nlohmann::json& bytes_of_ranks) {
  double most = 0;
  for (const auto& bytes : bytes_of_ranks) most = std::max(most, bytes.get<double>());
  return most;
}

}  // namespace

std::vector<double> pipeline_rounds(const PipelineTiming& timing, ScheduleKind kind, double micro_bytes,
                                    int64_t rounds) {
  const bool flushes = kind != ScheduleKind::kPipedream && kind != ScheduleKind::k2BW;
  plan::ScheduleRequest request;
  request.kind = kind;
  request.stages = request.microbatches = timing.workers;
  request.minibatches = flushes ? 1 : static_cast<int>(rounds);
  sim::PipelineCosts costs;
  costs.forward = {timing.forward};
  costs.backward = {timing.backward};
  costs.transfer = {timing.latency + micro_bytes / timing.bandwidth};
  const sim::PipelineRun run = sim::simulate_pipeline(plan::make_schedule(request), costs);
  std::vector<double> ends(static_cast<size_t>(rounds), 0);
  if (flushes)
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = run.makespan * static_cast<double>(i + 1);
  else
    for (const sim::PipelineSpan& span : run.spans)
      if (span.op == plan::ScheduleOp::kBackward) {
        double& end = ends.at(static_cast<size_t>(span.microbatch / timing.workers));
        end = std::max(end, span.end);
      }
  return ends;
}

struct PipelineAccuracy::Impl {
  struct Method {
    std::string name, told;
    bool data_parallel = false;
    bool updates_often = false;  // after every micro-batch
  };
  struct Trained {
    const Method* method = nullptr;
    std::vector<report::Point> seconds, epochs;  // x, accuracy
    double round = 0;                            // seconds
    double updates = 0;                          // in a round
    const report::Point* at_target = nullptr;    // in seconds

    double best() const {
      double best = 0;
      for (const report::Point& point : seconds) best = std::max(best, point.y);
      return best;
    }
  };

  static const std::vector<Method>& known_methods();

  Lab& lab;
  PipelineTiming timing;
  double epochs = 0;
  std::vector<const Method*> methods;
  std::vector<LabTraining> trainings;
  std::vector<Trained> trained = {};
  report::Series ideal = {};
  double target = 0;

  double minibatch() const { return timing.workers * (timing.forward + timing.backward); }  // of a replica
  int round_samples() const { return kMicroBatch * timing.workers; }

  void choose();
  void add(const Method& method, const std::string& file);
  std::vector<double> ends(const Method& method, const nlohmann::json& summary, int64_t rounds) const;
  void train(const Method& method, const LabTraining& training);
  void find_target();
  void add_result(const Trained& one) const;
  std::string against_time() const;
  std::string against_epochs() const;
  void table() const;
};

const std::vector<PipelineAccuracy::Impl::Method>& PipelineAccuracy::Impl::known_methods() {
  static const std::vector<Method> all = {
      {"bsp", "data parallel, gradients summed in every step", true},
      {"gpipe", "pipeline with a flush, all forwards first"},
      {"1f1b", "pipeline with a flush, backwards as early as possible"},
      {"pipedream", "no flush, an update after every micro-batch, stashed weights", false, true},
      {"2bw", "no flush, an update after every minibatch, two versions"},
  };
  return all;
}

PipelineAccuracy::PipelineAccuracy(Lab& lab, int stages, double forward, double backward)
    : impl_(new Impl{.lab = lab,
                     .timing = {stages, forward, backward, lab.values.rate("--bandwidth"),
                                lab.values.duration("--latency")},
                     .epochs = lab.values.number("--epochs", 0, 1e6),
                     .methods = {},
                     .trainings = {}}) {
  impl_->choose();
}

PipelineAccuracy::~PipelineAccuracy() = default;

size_t PipelineAccuracy::parts() const {
  return impl_->methods.size();
}

void PipelineAccuracy::Impl::choose() {
  const std::vector<std::string> wanted = lab.values.words("--methods");
  std::string names;
  for (const Method& method : known_methods()) names += " " + method.name;
  for (const std::string& name : wanted)
    if (std::none_of(known_methods().begin(), known_methods().end(),
                     [&](const Method& method) { return method.name == name; }))
      throw ConfigError("--methods {}: unknown. Accepted:{}.", name, names);
  if (epochs == 0) return;
  const std::string file = recipe_of(lab, "", perceptron_of(timing.workers));
  for (const Method& method : known_methods())
    if (std::find(wanted.begin(), wanted.end(), method.name) != wanted.end()) add(method, file);
}

void PipelineAccuracy::Impl::add(const Method& method, const std::string& file) {
  const std::string workers = fmt::format("{}", timing.workers);
  LabTraining::Settings settings = {
      {"train.epochs", fmt::format("{}", epochs)},
      {"train.steps", "0"},
      {"train.evaluate", "true"},
      {"data.limit", "0"},  // whatever the environment says
      {"data.batch_size", fmt::format("{}", method.data_parallel ? kMicroBatch : round_samples())}};
  if (!method.data_parallel)
    settings.insert(settings.end(), {{"parallel.pipeline", workers},
                                     {"pipeline.schedule", method.name},
                                     {"pipeline.microbatches", workers}});
  trainings.emplace_back(lab, file, "accuracy_" + method.name, timing.workers, settings);
  methods.push_back(&method);
}

std::vector<double> PipelineAccuracy::Impl::ends(const Method& method, const nlohmann::json& summary,
                                                 int64_t rounds) const {
  const nlohmann::json& sent = summary.at("communication");
  if (method.data_parallel)
    return summing_in_every_step({.workers = timing.workers,
                                  .link = {timing.bandwidth, timing.latency},
                                  .slow = 1,
                                  .compute = minibatch()},
                                 largest_of(sent.at("data")), 1, rounds)
        .seconds;
  // Counted for a step, which is a round; a stage between two others sends both ways.
  const double one_way = largest_of(sent.at("pipeline")) / (timing.workers > 2 ? 2 : 1);
  return pipeline_rounds(timing, plan::parse_schedule_kind(method.name), one_way / timing.workers, rounds);
}

void PipelineAccuracy::Impl::train(const Method& method, const LabTraining& training) {
  const TrainedRun run = training.run();
  const double round = round_samples();
  const auto rounds = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(static_cast<double>(run.records.back().samples) / round)));
  const std::vector<double> done = ends(method, run.summary, rounds);
  Trained one{.method = &method, .seconds = {}, .epochs = {}};
  one.round = done.back() / static_cast<double>(rounds);
  one.updates = method.updates_often ? timing.workers : 1;
  report::Series alone{.name = "no communication, no bubble", .colour = kIdealColour, .theory = true};
  for (const metrics::Record& record : run.records) {
    if (!record.accuracy) continue;
    const double at = std::round(static_cast<double>(record.samples) / round);
    const auto index = static_cast<size_t>(std::clamp<double>(at, 1, static_cast<double>(rounds))) - 1;
    one.seconds.push_back({done[index], *record.accuracy});
    one.epochs.push_back(
        {epochs * (static_cast<double>(index) + 1) / static_cast<double>(rounds), *record.accuracy});
    alone.points.push_back({minibatch() * (static_cast<double>(index) + 1), *record.accuracy});
  }
  if (one.seconds.empty()) throw ConfigError("{}: no accuracy was measured.", method.name);
  if (ideal.points.empty()) ideal = std::move(alone);
  trained.push_back(std::move(one));
}

void PipelineAccuracy::Impl::find_target() {
  for (const Trained& one : trained) target = std::max(target, kShareOfBest * one.best());
  for (Trained& one : trained)
    for (const report::Point& point : one.seconds)
      if (one.at_target == nullptr && point.y >= target) one.at_target = &point;
}

void PipelineAccuracy::Impl::add_result(const Trained& one) const {
  nlohmann::json row = {{"method", one.method->name},
                        {"accuracy", one.best()},
                        {"round_seconds", one.round},
                        {"updates_per_round", one.updates},
                        {"curve", nlohmann::json::array()}};
  if (one.at_target != nullptr) row["seconds_to_target"] = one.at_target->x;
  for (size_t i = 0; i < one.seconds.size(); ++i)
    row["curve"].push_back({one.epochs[i].x, one.seconds[i].x, one.seconds[i].y});
  lab.document["accuracy"].push_back(std::move(row));
}

std::string PipelineAccuracy::Impl::against_time() const {
  report::LineChart chart{.title = "Accuracy against time",
                          .x_label = "time",
                          .y_label = "accuracy",
                          .unit = report::Unit::kPercent,
                          .whole_x = false,
                          .x_unit = report::Unit::kSeconds};
  int colour = 0;
  for (const Trained& one : trained)
    chart.series.push_back({.name = one.method->name, .points = one.seconds, .colour = ++colour});
  chart.series.push_back(ideal);
  return report::to_svg(chart);
}

std::string PipelineAccuracy::Impl::against_epochs() const {
  report::LineChart chart{.title = "Accuracy against epochs",
                          .x_label = "epochs",
                          .y_label = "accuracy",
                          .unit = report::Unit::kPercent,
                          .whole_x = false};
  int colour = 0;
  for (const Trained& one : trained)
    chart.series.push_back({.name = one.method->name, .points = one.epochs, .colour = ++colour});
  return report::to_svg(chart);
}

void PipelineAccuracy::Impl::table() const {
  report::LabTable table{
      {"method", "minibatch of all", "updates", "time to target", "accuracy", "what it does"}, {}};
  for (const Trained& one : trained)
    table.rows.push_back({one.method->name, format_duration(one.round), fmt::format("{:.3g}", one.updates),
                          one.at_target != nullptr ? format_duration(one.at_target->x) : "never",
                          fmt::format("{:.1f} %", 100 * one.best()), one.method->told});
  table.notes = {fmt::format(
      "Target: an accuracy of {:.1f} %, {:.0f} % of the best. Minibatch of all: the time of {} samples, {} "
      "for "
      "each worker; updates: of the weights, in this time. A replica computes {} for its {} samples, a stage "
      "the same for its part of all {}.",
      100 * target, 100 * kShareOfBest, round_samples(), kMicroBatch, format_duration(minibatch()),
      kMicroBatch, round_samples())};
  lab.show(table);
}

void PipelineAccuracy::run() {
  Impl& impl = *impl_;
  for (size_t i = 0; i < impl.methods.size(); ++i)
    impl.lab.part("accuracy of " + impl.methods[i]->name,
                  [&] { impl.train(*impl.methods[i], impl.trainings[i]); });
  if (impl.trained.empty()) return;
  impl.find_target();
  impl.lab.document["target_accuracy"] = impl.target;
  for (const auto& one : impl.trained) impl.add_result(one);
  impl.lab.page.section(fmt::format("Accuracy against time: {} workers, links of {} and {}",
                                    impl.timing.workers, impl.lab.values.text("--bandwidth"),
                                    impl.lab.values.text("--latency")));
  impl.lab.page.add(
      {"accuracy_time", "Accuracy against time", impl.against_time(),
       "Accuracies of real runs, times of the modelled links. Dashed: the first method if nothing "
       "were sent and no worker ever idle."});
  impl.lab.page.add({"accuracy_epochs", "Accuracy against epochs", impl.against_epochs(),
                     "The same runs without the clock: what stale weights and more updates do."});
  impl.table();
}

}  // namespace yoke::cli
