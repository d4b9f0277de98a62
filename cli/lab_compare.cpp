// Every strategy trains on this machine: accuracies are those of the runs, and so are the bytes of strategies
// that sum in every step. Times are those of the modelled cluster (lab_compare_cluster.h), as in the lab on
// averaging: a laptop gives the same picture as a cluster.
#include "cli/lab_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/lab_compare_cluster.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {

const std::vector<LabOption> kCompareOptions = {
    {"--file", "", "", "configuration to train, with classes [a perceptron on synthetic vectors]"},
    {"--methods", "all", "one,ddp,local,ps_async", "all, or a list: one,ddp,local,ps_async"},
    {"--workers", "4", "2", "of the cluster"},
    {"--bandwidth", "1gbit", "1gbit", "of every worker's link"},
    {"--latency", "0.2ms", "0.2ms", "of a message"},
    {"--slow", "2", "2", "the last worker takes so many times as long; 1: none is slow"},
    {"--compute", "", "", "time of a minibatch on a worker [measured on one core]"},
    {"--every", "8", "4", "steps between two averages"},
    {"--epochs", "12", "1", "of each run; the accuracy is measured after each"},
    {"--target-accuracy", "", "", "from 0 to 1, for the time to target [0.95 of the best]"},
};

namespace {

constexpr const char* kCompareRecipe = R"([model]
name = "mlp"
sizes = [32, 512, 512, 512, 10]

[data]
name = "synthetic"
samples = 1024
batch_size = 32

[train]
optimizer = "sgd"
lr = 0.02
momentum = 0.0
threads = 1
)";

constexpr double kOfTheBest = 0.95;  // the target when none is given
constexpr const char* kIdealName = "ideal";
constexpr double kBelowOthers = 4;  // times fewer bytes than the others: where 0 stands on a logarithmic axis

enum class Timing { kOne, kSums, kAverages, kServed, kStaged };

struct Strategy {
  std::string name, told;
  Timing timing;
  LabTraining::Settings settings;
  bool shares = false;  // the slow worker gets fewer samples
};

struct Raced {
  std::string name;
  std::vector<report::Point> seconds, bytes;  // x, accuracy
  double final_loss = 0;
  const report::Point* at_target = nullptr;  // in seconds
  double bytes_to_target = 0;

  double best() const {
    double best = 0;
    for (const report::Point& point : seconds) best = std::max(best, point.y);
    return best;
  }
};

class CompareLab {
 public:
  explicit CompareLab(Lab& lab)
      : lab_(lab),
        epochs_(lab.values.number("--epochs", 0.01, 1e6)),
        file_(recipe_of(lab, lab.values.text("--file"), kCompareRecipe)) {
    cluster_.workers = lab.values.integer("--workers", 2, 64);
    cluster_.link = {lab.values.rate("--bandwidth"), lab.values.duration("--latency")};
    cluster_.slow = lab.values.number("--slow", 1, 100);
    if (!lab.values.text("--compute").empty()) cluster_.compute = lab.values.duration("--compute");
    if (!lab.values.text("--target-accuracy").empty()) target_ = lab.values.number("--target-accuracy", 0, 1);
    Configuration configuration;
    configuration.load(file_, {});
    batch_ = configuration.values.data.batch_size;
    choose();
  }

  void run() {
    lab_.page.title = "Every strategy on one cluster";
    lab_.page.about = fmt::format(
        "{} workers, links of {} and {}, one worker {} times slower; {} with minibatches of {}. "
        "Accuracy is "
        "that of real runs, time that of the modelled cluster.",
        cluster_.workers, lab_.values.text("--bandwidth"), lab_.values.text("--latency"),
        lab_.values.text("--slow"), counted(lab_.values.text("--epochs"), "epoch"), batch_);
    lab_.expect(chosen_.size());
    for (size_t i = 0; i < chosen_.size(); ++i)
      lab_.part(chosen_[i].name, [&] { add_run(chosen_[i], trainings_[i]); });
    find_target();
    lab_.document["compute_seconds"] = cluster_.compute;
    lab_.document["target_accuracy"] = target_;
    lab_.page.add(
        {"answer", fmt::format("Time and bytes to an accuracy of {:.1f} %", 100 * target_), answer(),
         "Left and below is better. Both axes are logarithmic; strategies that send nothing are at the "
         "lower edge."});
    lab_.page.add({"bars", "Time to the target", bars(),
                   "Dashed: one worker for each part of the work, no "
                   "communication and without a slow worker."});
    lab_.page.add({"time", "Accuracy against time", curves(/*time=*/true),
                   "On the modelled cluster. Dashed: ddp without communication and without a slow worker."});
    lab_.page.add(
        {"bytes", "Accuracy against bytes", curves(/*time=*/false),
         "Sent by a worker; with parameter servers also what it fetches. Strategies that send nothing are "
         "left out."});
    table();
  }

 private:
  std::vector<Strategy> known() const {
    const std::string every = lab_.values.text("--every");
    const std::string global = fmt::format("{}", batch_ * cluster_.workers);
    const std::string stages = fmt::format("{}", cluster_.workers),
                      half = fmt::format("{}", std::max(1, cluster_.workers / 2));
    std::string split;
    for (int i = 0; i < cluster_.workers; ++i)
      split += fmt::format("{}{:.0f}", i > 0 ? ":" : "",
                           i + 1 < cluster_.workers ? 100 : std::max(1.0, 100 / cluster_.slow));
    // The cluster has one worker on each machine: parameters in memory that ranks share would save bytes.
    const std::pair<std::string, std::string> separate = {"ddp.share_parameters", "false"};
    std::vector<Strategy> all = {
        {"one", "one device with the whole batch", Timing::kOne, {{"data.batch_size", global}}},
        {"ddp", "gradients summed in every step", Timing::kSums, {}},
        {"ddp_split",
         "ddp, fewer samples for the slow worker",
         Timing::kSums,
         {{"parallel.split", split}},
         true},
        {"ddp_powersgd", "ddp, gradients compressed", Timing::kSums, {{"ddp.hook", "powersgd:2"}}},
        {"zero2", "gradients and state sharded", Timing::kSums, {{"parallel.zero", "2"}, separate}},
        {"zero3", "zero2, parameters sharded too", Timing::kSums, {{"parallel.zero", "3"}, separate}},
        {"local",
         "parameters averaged every " + every + " steps",
         Timing::kAverages,
         {{"average.method", "local"}, {"average.every", every}}},
        {"diloco",
         "local, with an outer optimizer",
         Timing::kAverages,
         {{"average.method", "diloco"}, {"average.every", every}}},
        {"gossip",
         "neighbours on a ring average in every step",
         Timing::kAverages,
         {{"average.method", "gossip"}, {"average.graph", "ring"}, {"average.overlap", "1"}}},
        {"ps_sync", "servers wait for all workers", Timing::kServed, {{"ps.policy", "sync"}}},
        {"ps_k_sync",
         "servers wait for half, the others restart",
         Timing::kServed,
         {{"ps.policy", "k_sync"}, {"ps.k", half}}},
        {"ps_k_async", "servers take any half", Timing::kServed, {{"ps.policy", "k_async"}, {"ps.k", half}}},
        {"ps_async", "no worker waits", Timing::kServed, {{"ps.policy", "async"}}},
        {"ps_ssp",
         "no worker more than 4 rounds ahead",
         Timing::kServed,
         {{"ps.policy", "ssp"}, {"ps.max_delay", "4"}}},
        {"pipeline",
         "one stage each, 1f1b",
         Timing::kStaged,
         {{"parallel.pipeline", stages},
          {"pipeline.schedule", "1f1b"},
          {"pipeline.microbatches", stages},
          {"data.batch_size", global}}}};
    for (Strategy& one : all) {
      if (one.timing == Timing::kAverages) one.settings.emplace_back("parallel.sync", "average");
      if (one.timing != Timing::kServed) continue;
      one.settings.insert(one.settings.end(), {{"parallel.sync", "ps"}, {"ps.servers", half}});
      if (cluster_.slow > 1)
        one.settings.insert(one.settings.end(),
                            {{"slowdown.law", fmt::format("const:{}x", lab_.values.text("--slow"))},
                             {"slowdown.workers", fmt::format("{}", cluster_.workers - 1)}});
    }
    if (cluster_.slow == 1) std::erase_if(all, [](const Strategy& one) { return one.shares; });
    return all;
  }

  // All are checked before the first starts.
  void choose() {
    const std::vector<Strategy> all = known();
    std::vector<std::string> wanted = lab_.values.words("--methods");
    std::string names;
    for (const Strategy& one : all) names += " " + one.name;
    for (const std::string& name : wanted) {
      if (name == "all") continue;
      if (std::none_of(all.begin(), all.end(), [&](const Strategy& one) { return one.name == name; }))
        throw ConfigError("--methods {}: unknown. Accepted: all{}.", name, names);
    }
    for (const Strategy& one : all) {
      const bool is_wanted = std::find(wanted.begin(), wanted.end(), one.name) != wanted.end() ||
                             std::find(wanted.begin(), wanted.end(), "all") != wanted.end();
      const bool measures = one.timing == Timing::kOne && cluster_.compute == 0;
      if (is_wanted || measures) add(one);
    }
  }

  void add(const Strategy& one) {
    LabTraining::Settings settings = one.settings;
    settings.insert(
        settings.end(),
        {{"train.epochs", fmt::format("{}", epochs_)}, {"train.steps", "0"}, {"train.evaluate", "true"}});
    trainings_.emplace_back(lab_, file_, one.name, one.timing == Timing::kOne ? 1 : cluster_.workers,
                            settings);
    chosen_.push_back(one);
  }

  // Bytes that a rank sent in each step.
  static double sent_of(const nlohmann::json& summary, const char* axis) {
    double most = 0;
    for (const auto& bytes : summary.at("communication").at(axis)) most = std::max(most, bytes.get<double>());
    return most;
  }

  double relative_of_slowest(const Strategy& one) const {
    return one.shares ? cluster_.workers / (cluster_.workers - 1 + 1 / cluster_.slow) : cluster_.slow;
  }

  Progress timed(const Strategy& one, const RunConfig& config, const nlohmann::json& summary,
                 int64_t rounds) const {
    switch (one.timing) {
      case Timing::kOne:
        return one_device(cluster_, rounds);
      case Timing::kSums:
        return summing_in_every_step(cluster_, sent_of(summary, "data"), relative_of_slowest(one), rounds);
      case Timing::kAverages:
        return averaging_now_and_then(cluster_, config, rounds);
      case Timing::kServed:
        return parameter_servers(cluster_, config, rounds);
      case Timing::kStaged:
        return pipeline_of_stages(cluster_, config, sent_of(summary, "pipeline"), rounds);
    }
    YOKE_CHECK(false, "timing {}", static_cast<int>(one.timing));
  }

  void add_run(const Strategy& one, const LabTraining& training) {
    const TrainedRun run = training.run();
    if (one.timing == Timing::kOne && cluster_.compute == 0)
      cluster_.compute = run.summary["step_seconds"]["median"].get<double>() / cluster_.workers;
    if (cluster_.compute == 0)
      throw ConfigError("the time of a minibatch is not known: `one` failed. Set --compute.");
    const auto round = static_cast<double>(batch_ * cluster_.workers);  // samples
    const auto last =
        static_cast<int64_t>(std::ceil(static_cast<double>(run.records.back().samples) / round));
    const Progress progress = timed(one, training.config(), run.summary, std::max<int64_t>(1, last));
    Raced raced{.name = one.name};
    for (const metrics::Record& record : run.records) {
      raced.final_loss = record.loss;
      if (!record.accuracy) continue;
      const auto at =
          static_cast<size_t>(std::clamp<double>(std::round(static_cast<double>(record.samples) / round), 1,
                                                 static_cast<double>(progress.seconds.size())) -
                              1);
      raced.seconds.push_back({progress.seconds[at], *record.accuracy});
      raced.bytes.push_back({progress.bytes[at], *record.accuracy});
    }
    if (raced.seconds.empty())
      throw ConfigError("{}: no accuracy was measured. Give a configuration with classes and a test set.",
                        one.name);
    if (one.name == "ddp" || ideal_.points.empty()) {
      const double alone = cluster_.compute;
      ideal_ = {.name = kIdealName, .points = {}, .colour = 6, .theory = true};
      for (size_t i = 0; i < raced.seconds.size(); ++i)
        ideal_.points.push_back({alone * static_cast<double>((i + 1) * progress.seconds.size()) /
                                     static_cast<double>(raced.seconds.size()),
                                 raced.seconds[i].y});
    }
    raced_.push_back(std::move(raced));
  }

  void find_target() {
    if (target_ <= 0)
      for (const Raced& one : raced_) target_ = std::max(target_, kOfTheBest * one.best());
    for (Raced& one : raced_) {
      for (size_t i = 0; i < one.seconds.size() && one.at_target == nullptr; ++i)
        if (one.seconds[i].y >= target_) {
          one.at_target = &one.seconds[i];
          one.bytes_to_target = one.bytes[i].x;
        }
      nlohmann::json row = {{"method", one.name},
                            {"accuracy", one.best()},
                            {"final_loss", one.final_loss},
                            {"seconds", one.seconds.back().x},
                            {"bytes", one.bytes.back().x}};
      if (one.at_target != nullptr) {
        row["seconds_to_target"] = one.at_target->x;
        row["bytes_to_target"] = one.bytes_to_target;
      }
      row["curve"] = nlohmann::json::array();
      for (size_t i = 0; i < one.seconds.size(); ++i)
        row["curve"].push_back({one.seconds[i].x, one.bytes[i].x, one.seconds[i].y});
      lab_.result(std::move(row));
    }
  }

  std::string answer() const {
    report::LineChart chart{.title = "Time and bytes to the target",
                            .x_label = "time to the target",
                            .y_label = "sent by a worker",
                            .unit = report::Unit::kBytes,
                            .log = true,
                            .log_x = true,
                            .whole_x = false,
                            .x_unit = report::Unit::kSeconds};
    double least = HUGE_VAL;
    for (const Raced& one : raced_)
      if (one.at_target != nullptr && one.bytes_to_target > 0) least = std::min(least, one.bytes_to_target);
    const double edge = std::isfinite(least) ? least / kBelowOthers : 1;  // for who sends nothing
    int colour = 0;
    for (const Raced& one : raced_) {
      ++colour;
      if (one.at_target == nullptr) continue;
      const bool sends = one.bytes_to_target > 0;
      chart.series.push_back({.name = sends ? one.name : one.name + ": sends nothing",
                              .points = {{one.at_target->x, sends ? one.bytes_to_target : edge}},
                              .colour = colour});
    }
    return report::to_svg(chart);
  }

  std::string bars() const {
    report::StackedBars chart{.title = "Time to the target",
                              .x_label = "strategy",
                              .y_label = "time",
                              .unit = report::Unit::kSeconds,
                              .legend = false,
                              .layers = {"time to the target"}};
    double least = 0;
    for (const report::Point& point : ideal_.points)
      if (least == 0 && point.y >= target_) least = point.x;
    double at = 0;
    for (const Raced& one : raced_)
      if (one.at_target != nullptr) {
        chart.bars.push_back({at, at + 0.8, {one.at_target->x}, one.name, least});
        ++at;
      }
    return report::to_svg(chart);
  }

  std::string curves(bool time) const {
    report::LineChart chart{.title = time ? "Accuracy against time" : "Accuracy against bytes",
                            .x_label = time ? "time" : "sent by a worker",
                            .y_label = "accuracy",
                            .unit = report::Unit::kPercent,
                            .log_x = true,
                            .whole_x = false,
                            .x_unit = time ? report::Unit::kSeconds : report::Unit::kBytes};
    int colour = 0;
    for (const Raced& one : raced_) {
      ++colour;
      if (time || one.bytes.back().x > 0)
        chart.series.push_back(
            {.name = one.name, .points = time ? one.seconds : one.bytes, .colour = colour});
    }
    if (time && !ideal_.points.empty()) chart.series.push_back(ideal_);
    return report::to_svg(chart);
  }

  void table() {
    report::LabTable table{
        {"strategy", "time to target", "sent to target", "accuracy", "time", "what it does"}, {}};
    std::vector<const Raced*> order;
    for (const Raced& one : raced_) order.push_back(&one);
    std::stable_sort(order.begin(), order.end(), [](const Raced* a, const Raced* b) {
      auto key = [](const Raced* one) { return one->at_target != nullptr ? one->at_target->x : HUGE_VAL; };
      return key(a) < key(b);
    });
    for (const Raced* one : order) {
      std::string told;
      for (const Strategy& strategy : chosen_)
        if (strategy.name == one->name) told = strategy.told;
      const bool reached = one->at_target != nullptr;
      table.rows.push_back({one->name, reached ? format_duration(one->at_target->x) : "never",
                            reached ? format_bytes(one->bytes_to_target) : "–",
                            fmt::format("{:.1f} %", 100 * one->best()),
                            format_duration(one->seconds.back().x), told});
    }
    if (!order.empty() && order[0]->at_target != nullptr)
      lab_.page.result = fmt::format("{} is the first to reach {:.1f} %: {}.", order[0]->name, 100 * target_,
                                     format_duration(order[0]->at_target->x));
    table.notes = {fmt::format(
        "Target: an accuracy of {:.1f} %. A minibatch takes {} on a worker. Every run processes "
        "the same number of samples, with the same learning rate. Bytes of ddp, zero and pipeline are "
        "counted in the runs, the others follow from the size of the model. Asynchronous runs differ from "
        "run to run.",
        100 * target_, format_duration(cluster_.compute))};
    lab_.show(table);
  }

  Lab& lab_;
  const double epochs_;
  const std::string file_;
  ModelledCluster cluster_;
  int64_t batch_ = 1;
  double target_ = 0;
  std::vector<Strategy> chosen_;
  std::vector<LabTraining> trainings_;
  std::vector<Raced> raced_;
  report::Series ideal_;
};

}  // namespace

void run_lab_compare(Lab& lab) {
  CompareLab(lab).run();
}

}  // namespace yoke::cli
