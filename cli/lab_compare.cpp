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
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/metrics/quantiles.h"
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
    {"--seeds", "3", "1", "runs of each strategy, with other samples and weights; medians are compared"},
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

// With one seed.
struct Race {
  std::vector<report::Point> seconds, bytes;  // x, accuracy
  double rounds = 0;                          // of the modelled cluster
  double final_loss = 0;
  double seconds_to_target = HUGE_VAL, bytes_to_target = 0;  // infinite: never

  bool reaches() const { return std::isfinite(seconds_to_target); }
  double best() const {
    double best = 0;
    for (const report::Point& point : seconds) best = std::max(best, point.y);
    return best;
  }
  void aim_at(double target) {
    const auto first =
        std::ranges::find_if(seconds, [&](const report::Point& point) { return point.y >= target; });
    if (first == seconds.end()) return;
    seconds_to_target = first->x;
    bytes_to_target = bytes[static_cast<size_t>(first - seconds.begin())].x;
  }
};

struct Raced {
  std::string name;
  std::vector<Race> races;  // one of each seed; sort() orders them by their time to the target

  void sort() {
    std::ranges::stable_sort(races, [](const Race& a, const Race& b) {
      return std::pair(a.seconds_to_target, -a.best()) < std::pair(b.seconds_to_target, -b.best());
    });
  }
  // After sort(). Of an even number the later one in the middle.
  const Race& median() const { return races[races.size() / 2]; }
  double fastest() const { return races.front().seconds_to_target; }
  // Of those that reach the target.
  double slowest() const {
    double slowest = 0;
    for (const Race& race : races)
      if (race.reaches()) slowest = std::max(slowest, race.seconds_to_target);
    return slowest;
  }
  size_t reached() const { return static_cast<size_t>(std::ranges::count_if(races, &Race::reaches)); }
  double best() const {
    std::vector<double> all;
    for (const Race& race : races) all.push_back(race.best());
    return metrics::median(all);
  }
};

class CompareLab {
 public:
  explicit CompareLab(Lab& lab)
      : lab_(lab),
        epochs_(lab.values.number("--epochs", 0.01, 1e6)),
        seeds_(lab.values.integer("--seeds", 1, 100)),
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
        "{} workers, links of {} and {}, one worker {} times slower; {} with minibatches of {}; "
        "{} of each strategy. Accuracy is that of real runs, time that of the modelled cluster.",
        cluster_.workers, lab_.values.text("--bandwidth"), lab_.values.text("--latency"),
        lab_.values.text("--slow"), counted(lab_.values.text("--epochs"), "epoch"), batch_,
        counted(lab_.values.text("--seeds"), "run"));
    lab_.expect(planned_.size());
    for (const Planned& run : planned_)
      lab_.part(run.name, [&] { add_run(chosen_[run.strategy], run.training); });
    find_target();
    lab_.document["compute_seconds"] = cluster_.compute;
    lab_.document["target_accuracy"] = target_;
    lab_.page.add(
        {"answer", fmt::format("Time and bytes to an accuracy of {:.1f} %", 100 * target_), answer(),
         "Left and below is better. Both axes are logarithmic; strategies that send nothing are at the "
         "lower edge. Every point is a run; the name stands at the median."});
    lab_.page.add(
        {"bars", "Time to the target", bars(),
         "Medians; whiskers: from the first to the last run that reaches it. Dashed: one worker for "
         "each part of the work, no communication and without a slow worker."});
    lab_.page.add({"time", "Accuracy against time", curves(/*time=*/true),
                   "On the modelled cluster: the median run, faint the others. Dashed: ddp without "
                   "communication and without a slow worker."});
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
      if (is_wanted || measures) chosen_.push_back(one);
    }
    plan();
  }

  // Strategies take turns: other load on this machine disturbs all alike.
  void plan() {
    for (int seed = 1; seed <= seeds_; ++seed)
      for (size_t i = 0; i < chosen_.size(); ++i) {
        const Strategy& one = chosen_[i];
        const std::string name = seeds_ == 1 ? one.name : fmt::format("{}_seed{}", one.name, seed);
        LabTraining::Settings settings = one.settings;
        settings.insert(settings.end(), {{"train.epochs", fmt::format("{}", epochs_)},
                                         {"train.steps", "0"},
                                         {"train.evaluate", "true"},
                                         {"train.seed", fmt::format("{}", seed)}});
        const int ranks = one.timing == Timing::kOne ? 1 : cluster_.workers;
        planned_.push_back({i, name, LabTraining(lab_, file_, name, ranks, settings)});
      }
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
    Race raced{.rounds = static_cast<double>(progress.seconds.size())};
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
    auto found = std::ranges::find(raced_, one.name, &Raced::name);
    if (found == raced_.end()) found = raced_.insert(found, Raced{one.name, {}});
    found->races.push_back(std::move(raced));
  }

  // The accuracies of ddp, or of the first strategy, at the pace of computing alone.
  void find_ideal() {
    if (raced_.empty()) return;
    const auto ddp = std::ranges::find(raced_, "ddp", &Raced::name);
    const Race& race = (ddp == raced_.end() ? raced_.front() : *ddp).median();
    for (size_t i = 0; i < race.seconds.size(); ++i)
      ideal_.points.push_back({cluster_.compute * static_cast<double>(i + 1) * race.rounds /
                                   static_cast<double>(race.seconds.size()),
                               race.seconds[i].y});
  }

  void find_target() {
    if (target_ <= 0)
      for (const Raced& one : raced_) target_ = std::max(target_, kOfTheBest * one.best());
    for (Raced& one : raced_) {
      for (Race& race : one.races) race.aim_at(target_);
      one.sort();
      lab_.result(result_of(one));
    }
    find_ideal();
  }

  static nlohmann::json result_of(const Raced& one) {
    const Race& median = one.median();
    nlohmann::json row = {{"method", one.name},
                          {"runs", one.races.size()},
                          {"reached", one.reached()},
                          {"accuracy", one.best()},
                          {"final_loss", median.final_loss},
                          {"seconds", median.seconds.back().x},
                          {"bytes", median.bytes.back().x}};
    if (median.reaches()) {
      row["seconds_to_target"] = median.seconds_to_target;
      row["bytes_to_target"] = median.bytes_to_target;
    }
    if (one.reached() > 0) {
      row["seconds_to_target_low"] = one.fastest();
      row["seconds_to_target_high"] = one.slowest();
    }
    row["curve"] = nlohmann::json::array();
    for (size_t i = 0; i < median.seconds.size(); ++i)
      row["curve"].push_back({median.seconds[i].x, median.bytes[i].x, median.seconds[i].y});
    return row;
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
      for (const Race& race : one.races)
        if (race.reaches() && race.bytes_to_target > 0) least = std::min(least, race.bytes_to_target);
    const double edge = std::isfinite(least) ? least / kBelowOthers : 1;  // for who sends nothing
    int colour = 0;
    for (const Raced& one : raced_) {
      ++colour;
      const Race& median = one.median();
      if (!median.reaches()) continue;
      const bool sends = median.bytes_to_target > 0;
      auto place = [&](const Race& race) -> report::Point {
        return {race.seconds_to_target, sends ? race.bytes_to_target : edge};
      };
      report::Series all{.colour = colour};
      for (const Race& race : one.races)
        if (race.reaches()) all.points.push_back(place(race));
      if (all.points.size() > 1) chart.series.push_back(std::move(all));
      chart.series.push_back({.name = sends ? one.name : one.name + ": sends nothing",
                              .points = {place(median)},
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
      if (one.median().reaches()) {
        chart.bars.push_back(
            {at, at + 0.8, {one.median().seconds_to_target}, one.name, least, one.fastest(), one.slowest()});
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
      const Race& median = one.median();
      if (!time && median.bytes.back().x == 0) continue;
      for (const Race& race : one.races) {
        const bool is_median = &race == &median;
        chart.series.push_back({.name = is_median ? one.name : "",
                                .points = time ? race.seconds : race.bytes,
                                .colour = colour,
                                .faint = !is_median});
      }
    }
    if (time && !ideal_.points.empty()) chart.series.push_back(ideal_);
    return report::to_svg(chart);
  }

  // The answer, with what speaks against it.
  std::string answer_in_words(const std::vector<const Raced*>& order) const {
    if (order.empty() || !order[0]->median().reaches()) return "";
    const Raced& first = *order[0];
    std::string words = fmt::format("{} is the first to reach {:.1f} %: {}", first.name, 100 * target_,
                                    format_duration(first.median().seconds_to_target));
    if (seeds_ == 1) return words + ", in one run. --seeds 3 tells how much that changes.";
    words += fmt::format(", the median of {} runs ({} to {}).", first.races.size(),
                         format_duration(first.fastest()), format_duration(first.slowest()));
    std::vector<std::string> close;
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->reached() > 0 && order[i]->fastest() <= first.slowest()) close.push_back(order[i]->name);
    return close.empty() ? words + " None of the others has a run as fast as its slowest."
                         : words + " Its runs overlap with those of " + join(close) +
                               ": their order may change with more runs.";
  }

  void table() {
    report::LabTable table{{"strategy", "time to target", "spread", "reached", "sent to target", "accuracy",
                            "time", "what it does"},
                           {}};
    std::vector<const Raced*> order;
    for (const Raced& one : raced_) order.push_back(&one);
    std::ranges::stable_sort(order, {}, [](const Raced* one) { return one->median().seconds_to_target; });
    for (const Raced* one : order) {
      std::string told;
      for (const Strategy& strategy : chosen_)
        if (strategy.name == one->name) told = strategy.told;
      const Race& median = one->median();
      const bool reached = median.reaches();
      table.rows.push_back(
          {one->name, reached ? format_duration(median.seconds_to_target) : "never",
           one->reached() > 0
               ? fmt::format("{} – {}", format_duration(one->fastest()), format_duration(one->slowest()))
               : "–",
           fmt::format("{} of {}", one->reached(), one->races.size()),
           reached ? format_bytes(median.bytes_to_target) : "–", fmt::format("{:.1f} %", 100 * one->best()),
           format_duration(median.seconds.back().x), told});
    }
    lab_.page.result = answer_in_words(order);
    table.notes = {fmt::format(
        "Target: an accuracy of {:.1f} %. A minibatch takes {} on a worker. Every run processes "
        "the same number of samples, with the same learning rate. Bytes of ddp, zero and pipeline are "
        "counted in the runs, the others follow from the size of the model.",
        100 * target_, format_duration(cluster_.compute))};
    table.notes.push_back(
        seeds_ == 1
            ? "One run of each strategy: other samples and weights, and in asynchronous runs the timing, may "
              "change the order."
            : fmt::format("Medians of {} runs with other samples and weights; spread: the first and the last "
                          "run that reaches the target. A run that does not counts as the slowest.",
                          seeds_));
    lab_.show(table);
  }

  Lab& lab_;
  struct Planned {
    size_t strategy;  // in chosen_
    std::string name;
    LabTraining training;
  };

  const double epochs_;
  const int seeds_;
  const std::string file_;
  ModelledCluster cluster_;
  int64_t batch_ = 1;
  double target_ = 0;
  std::vector<Strategy> chosen_;
  std::vector<Planned> planned_;
  std::vector<Raced> raced_;
  report::Series ideal_{.name = kIdealName, .points = {}, .colour = 6, .theory = true};
};

}  // namespace

void run_lab_compare(Lab& lab) {
  CompareLab(lab).run();
}

}  // namespace yoke::cli
