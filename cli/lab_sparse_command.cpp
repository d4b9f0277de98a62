// A run for each delay, with all filters; then runs with fewer filters at the first delay. Workers and
// servers are threads of this process.
#include "cli/lab_sparse_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/data/formats/libsvm.h"
#include "yoke/ps/blocks/experiment.h"
#include "yoke/report/sparse_lab.h"

namespace yoke::cli {
namespace {

namespace blocks = ps::blocks;

constexpr double kReachedByAllDelays = 1.0001;  // times the worst final objective: the target
constexpr int64_t kMostDelay = 10'000;
constexpr std::tuple<const char*, bool, bool> kFilters[] = {
    {"none", false, false}, {"key cache", true, false}, {"+ zstd", true, true}};

// Examples [begin, end) of a file's rows.
blocks::Examples share_of(const data::SparseRows& rows, int64_t begin, int64_t end) {
  blocks::Examples share;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = rows.offsets[static_cast<size_t>(i)]; j < rows.offsets[static_cast<size_t>(i) + 1];
         ++j) {
      share.keys.push_back(static_cast<blocks::Key>(rows.indices[static_cast<size_t>(j)]));
      share.values.push_back(rows.values[static_cast<size_t>(j)]);
    }
    share.offsets.push_back(share.keys.size());
    share.labels.push_back(rows.labels[static_cast<size_t>(i)] > 0 ? 1 : -1);
  }
  return share;
}

class SparseLab {
 public:
  explicit SparseLab(SparseLabArguments arguments) : arguments_(std::move(arguments)) {
    for (const std::string& word : split(arguments_.max_delays, ',')) delays_.push_back(delay_of(word));
    if (delays_.empty()) throw ConfigError("--max-delay: none. Give a list such as 0,1,4.");
    experiment_.keys = static_cast<blocks::Key>(arguments_.keys);
    experiment_.servers = static_cast<int>(arguments_.servers);
    experiment_.backend = arguments_.backend;
    experiment_.solver.l1 = arguments_.l1;
    experiment_.solver.damping = arguments_.damping;
    experiment_.solver.passes = arguments_.passes;
    experiment_.solver.seed = static_cast<uint64_t>(arguments_.seed);
    experiment_.solver.slowdown = plan::parse_delay_law(arguments_.delay);
    experiment_.slow = plan::parse_slow_workers("--delay-workers", arguments_.delay_workers,
                                                static_cast<int>(arguments_.workers));
    make_problems();
  }

  void run_all(Lab& frame) {
    frame.expect(delays_.size() + std::size(kFilters));
    for (int64_t delay : delays_) frame.part(fmt::format("delay {}", delay), [&] { run_with(delay); });
    if (runs_.empty()) return;
    run_filters(frame);
    target_ = 0;
    for (const report::SparseRun& run : runs_)
      target_ = std::max(target_, run.final_objective * kReachedByAllDelays);
    for (report::SparseRun& run : runs_) {
      for (size_t pass = 0; pass < run.objective.size() && !run.seconds_to_target; ++pass) {
        if (run.objective[pass].y > target_) continue;
        run.seconds_to_target = run.objective[pass].x;
        run.passes_to_target = static_cast<int64_t>(pass) + 1;
      }
    }
  }

  std::string about() const {
    return fmt::format(
        "{} examples with {:.0f} of {} features each, {} workers and {} servers over {}, {} blocks, l1 {}, "
        "delay {} on {}",
        format_count(static_cast<double>(examples_)),
        static_cast<double>(elements_) / static_cast<double>(examples_),
        format_count(static_cast<double>(arguments_.keys)), arguments_.workers, arguments_.servers,
        arguments_.backend, problems_.front().blocks(), arguments_.l1, arguments_.delay,
        arguments_.delay_workers.empty() ? "all workers" : "workers " + arguments_.delay_workers);
  }

  void tell(Lab& frame) const {
    nlohmann::json filters = nlohmann::json::array();
    for (const report::SparseRun& run : runs_) frame.result(row_of(run));
    for (const report::FilteredRun& run : filtered_)
      filters.push_back({{"filters", run.filters},
                         {"bytes_sent", run.sent},
                         {"bytes_received", run.received},
                         {"objective", run.objective}});
    frame.document.update({{"filters", filters},
                           {"kkt_left_out", left_out_},
                           {"target_objective", target_},
                           {"examples", examples_},
                           {"elements", elements_},
                           {"keys", arguments_.keys},
                           {"l1", arguments_.l1}});
    frame.csv = curves();
    frame.page.title = "Sparse logistic regression over parameter servers";
    frame.page.about = about();
    if (runs_.empty()) return;
    report::add_sparse(frame.page, target_, runs_, filtered_);
    report::LabTable table{
        {"max delay", "time to target", "passes", "time", "waiting", "objective", "weights"}, {}};
    for (const report::SparseRun& run : runs_)
      table.rows.push_back({fmt::format("{}", run.max_delay),
                            run.seconds_to_target ? fmt::format("{:.2f} s", *run.seconds_to_target) : "never",
                            run.passes_to_target ? fmt::format("{}", *run.passes_to_target) : "",
                            fmt::format("{:.2f} s", run.objective.back().x),
                            fmt::format("{:.1f} %", 100 * run.idle_fraction()),
                            fmt::format("{:.8g}", run.final_objective), fmt::format("{}", run.nonzeros)});
    report::LabTable traffic{{"filters", "pushed", "pulled"}, {}};
    for (const report::FilteredRun& run : filtered_)
      traffic.rows.push_back({run.filters, format_bytes(run.sent), format_bytes(run.received)});
    frame.print(table, "");
    frame.print(traffic, fmt::format("target: an objective of {:.8g}", target_));
  }

  const std::string& weights() const { return weights_; }

  std::string curves() const {
    std::string lines = "max_delay,pass,seconds,objective\n";
    for (const report::SparseRun& run : runs_)
      for (size_t pass = 0; pass < run.objective.size(); ++pass)
        lines += fmt::format("{},{},{:.6g},{:.10g}\n", run.max_delay, pass + 1, run.objective[pass].x,
                             run.objective[pass].y);
    return lines;
  }

  // What a model of the paper's size would take.
  std::string larger() const {
    const double of_examples = static_cast<double>(bytes_) / static_cast<double>(examples_);
    return fmt::format(
        "10^9 features would take {} on the servers (32 bytes each), 10^9 examples like these {} on the "
        "workers",
        format_bytes(32e9), format_bytes(1e9 * of_examples));
  }

 private:
  static int64_t delay_of(const std::string& word) {
    int64_t delay = -1;
    const char* end = word.data() + word.size();
    const auto [rest, problem] = std::from_chars(word.data(), end, delay);
    if (problem != std::errc() || rest != end || delay < 0 || delay > kMostDelay)
      throw ConfigError("--max-delay {}: expected numbers from 0 to {}, such as 0,1,4.", word, kMostDelay);
    return delay;
  }

  void make_problems() {
    const int64_t workers = arguments_.workers;
    std::optional<data::SparseRows> rows;
    int64_t count = arguments_.examples;
    if (!arguments_.file.empty()) {
      rows = data::parse_libsvm(read_file(arguments_.file), arguments_.keys, arguments_.file, count);
      count = rows->rows();
    }
    if (count < workers) throw ConfigError("{} examples for {} workers: each needs one.", count, workers);
    const blocks::GeneratorOptions generator{.examples = count,
                                             .keys = experiment_.keys,
                                             .per_example = arguments_.per_example,
                                             .seed = static_cast<uint64_t>(arguments_.seed)};
    for (int64_t worker = 0; worker < workers; ++worker) {
      const int64_t begin = count * worker / workers, end = count * (worker + 1) / workers;
      problems_.emplace_back(rows ? share_of(*rows, begin, end) : blocks::generate(generator, begin, end),
                             experiment_.keys, std::min(arguments_.blocks, arguments_.keys));
    }
    for (blocks::LocalProblem& problem : problems_) {
      experiment_.problems.push_back(&problem);
      examples_ += static_cast<int64_t>(problem.examples());
      elements_ += static_cast<int64_t>(problem.elements());
      bytes_ += problem.bytes();
    }
  }

  blocks::Outcome run_once() {
    double said = now_seconds();
    experiment_.progress = [&, begun = said](int64_t pass) {
      const double now = now_seconds();
      if (now - said < 5) return;
      said = now;
      const double left =
          (now - begun) / static_cast<double>(pass + 1) * static_cast<double>(arguments_.passes - pass - 1);
      log::info("lab sparse: pass {} of {}, {} left", pass + 1, arguments_.passes, format_duration(left));
    };
    return blocks::run(experiment_);
  }

  void run_with(int64_t delay) {
    experiment_.solver.delay = delay;
    const blocks::Outcome outcome = run_once();
    report::SparseRun run;
    run.max_delay = delay;
    for (const auto& point : outcome.curve) run.objective.push_back({point.seconds, point.objective});
    for (const auto& worker : outcome.workers) {
      run.workers.push_back({worker.compute_seconds, worker.wait_seconds});
      keys_ += worker.keys;
      keys_left_out_ += worker.keys_left_out;
    }
    run.final_objective = outcome.objective;
    run.nonzeros = static_cast<int64_t>(outcome.support.size());
    if (runs_.empty()) {
      all_filters_ = filtered("+ KKT", outcome);
      for (size_t i = 0; i < outcome.support.size(); ++i)
        weights_ += fmt::format("{} {:.17g}\n", outcome.support[i] + 1, outcome.weights[i]);
    }
    runs_.push_back(std::move(run));
    left_out_ = keys_ > 0 ? static_cast<double>(keys_left_out_) / static_cast<double>(keys_) : 0;
  }

  static report::FilteredRun filtered(const std::string& name, const blocks::Outcome& outcome) {
    return {name, static_cast<double>(outcome.traffic.sent), static_cast<double>(outcome.traffic.received),
            outcome.objective};
  }

  void run_filters(Lab& frame) {
    experiment_.solver.delay = delays_.front();
    experiment_.solver.kkt = false;
    for (const auto& [name, caches, compresses] : kFilters) {
      experiment_.key_cache = caches;
      experiment_.compress = compresses;
      frame.part(fmt::format("filters: {}", name),
                 [&, filter = std::string(name)] { filtered_.push_back(filtered(filter, run_once())); });
    }
    filtered_.push_back(all_filters_);
  }

  static nlohmann::json row_of(const report::SparseRun& run) {
    nlohmann::json curve = nlohmann::json::array(), workers = nlohmann::json::array();
    for (const report::Point& point : run.objective) curve.push_back({point.x, point.y});
    for (const auto& worker : run.workers)
      workers.push_back({{"compute_seconds", worker.compute}, {"wait_seconds", worker.wait}});
    nlohmann::json row = {{"max_delay", run.max_delay},
                          {"objective", run.final_objective},
                          {"nonzeros", run.nonzeros},
                          {"idle_fraction", run.idle_fraction()},
                          {"seconds", run.objective.back().x},
                          {"workers", workers},
                          {"curve", curve}};
    if (run.seconds_to_target) row["seconds_to_target"] = *run.seconds_to_target;
    if (run.passes_to_target) row["passes_to_target"] = *run.passes_to_target;
    return row;
  }

  const SparseLabArguments arguments_;
  std::vector<int64_t> delays_;
  std::vector<blocks::LocalProblem> problems_;
  blocks::Experiment experiment_;
  int64_t examples_ = 0, elements_ = 0;
  size_t bytes_ = 0;
  std::vector<report::SparseRun> runs_;
  std::vector<report::FilteredRun> filtered_;
  report::FilteredRun all_filters_;
  int64_t keys_ = 0, keys_left_out_ = 0;
  double left_out_ = 0;  // share of the keys of all visits
  double target_ = 0;
  std::string weights_;
};

}  // namespace

void run_lab_sparse(Lab& frame) {
  SparseLabArguments arguments = frame.line.lab_sparse;
  frame.quick_default("--examples", arguments.examples, int64_t{2000});
  frame.quick_default("--keys", arguments.keys, int64_t{20'000});
  frame.quick_default("--workers", arguments.workers, int64_t{2});
  frame.quick_default("--blocks", arguments.blocks, int64_t{8});
  frame.quick_default("--passes", arguments.passes, int64_t{6});
  frame.quick_default("--max-delay", arguments.max_delays, std::string("0,2"));
  SparseLab lab(std::move(arguments));
  log::info("lab sparse: {}", lab.about());
  log::info("lab sparse: {}", lab.larger());
  lab.run_all(frame);
  write_file_atomically(frame.out / "weights.txt", lab.weights());
  lab.tell(frame);
}

}  // namespace yoke::cli
