#include "yoke/ps/blocks/solver.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/ps/sparse/row_filters.h"
#include "yoke/ps/tasks.h"

namespace yoke::ps::blocks {
namespace {

constexpr int64_t kFullPass = 8;    // every so many passes nothing is left out
constexpr int64_t kLastPasses = 2;  // neither in these
constexpr double kLeastCurvature = 1e-12;

std::span<const std::byte> bytes_of(const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

class Solver {
 public:
  Solver(sparse::Client& client, int table, LocalProblem& problem, int worker, int workers,
         const SolverOptions& options)
      : client_(client),
        table_(table),
        problem_(problem),
        options_(options),
        workers_(workers),
        slowdown_(options.slowdown, options.seed, worker),
        visits_(static_cast<size_t>(problem.blocks())) {}

  SolverReport run() {
    report_.passes.resize(static_cast<size_t>(options_.passes));
    begun_ = now_seconds();
    {
      Tasks tasks;
      for (int64_t pass = 0; pass < options_.passes; ++pass) {
        submit_pass(tasks, pass);
        // A pass ahead keeps the thread busy; more would only take memory.
        if (pass > 0) tasks.wait(pass * problem_.blocks() - 1, Deadline::after(options_.timeout));
      }
      tasks.wait_all(Deadline::after(options_.timeout));
      report_.most_in_flight = tasks.most_in_flight();
    }
    take_arrived();
    report_.passes.back().loss = problem_.loss();
    report_.wait_seconds = std::max(0.0, now_seconds() - begun_ - report_.compute_seconds);
    return std::move(report_);
  }

 private:
  // Of a block: memory of its visit, and the task that was last to visit it.
  struct Visit {
    Tasks::Id last = -1;
    std::vector<Key> keys;
    std::vector<double> pairs;
    std::vector<double> weights;
  };

  void submit_pass(Tasks& tasks, int64_t pass) {
    std::vector<int64_t> order(visits_.size());
    std::iota(order.begin(), order.end(), 0);
    Random random(derive_seed(options_.seed, 0, static_cast<uint64_t>(pass)));
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (int64_t block : order) {
      Tasks::After after = Tasks::bounded_delay(submitted_, options_.delay);
      Visit& visit = visits_[static_cast<size_t>(block)];
      if (visit.last >= 0) after.these.push_back(visit.last);
      const bool ends_pass = block == order.back();
      visit.last = tasks.submit(
          [this, pass, block, ends_pass, time = submitted_ + 1](const Tasks::Finish& finish) {
            begin_visit(pass, block, time, finish);
            if (ends_pass) note_pass(pass);
          },
          std::move(after));
      ++submitted_;
    }
  }

  // On the thread of the tasks, the only one that uses the problem.
  void begin_visit(int64_t pass, int64_t block, int64_t time, const Tasks::Finish& finish) {
    const double begin = now_seconds();
    take_arrived();
    Visit& visit = visits_[static_cast<size_t>(block)];
    problem_.derivatives(block, visit.pairs);
    const double damping = 1 + options_.damping * static_cast<double>(options_.delay) * options_.overlap;
    for (size_t i = 1; i < visit.pairs.size(); i += 2) visit.pairs[i] *= damping;
    const std::span<const Key> all = problem_.keys(block);
    visit.keys.assign(all.begin(), all.end());
    report_.keys += static_cast<int64_t>(all.size());
    if (filters(pass)) leave_out(block, visit);
    if (const double delay = slowdown_.next(now_seconds() - begin); delay > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(delay));
    report_.compute_seconds += now_seconds() - begin;
    const sparse::KeyRange range = problem_.block_range(block);
    client_.push_round(table_, range, time, visit.keys, bytes_of(visit.pairs),
                       [this, block, time, range, finish](const std::string& error) {
                         if (!error.empty()) return finish(error);
                         fetch(block, time, range, finish);
                       });
  }

  void fetch(int64_t block, int64_t time, sparse::KeyRange range, const Tasks::Finish& finish) {
    Visit& visit = visits_[static_cast<size_t>(block)];
    const std::span<const Key> keys = problem_.keys(block);
    visit.weights.resize(keys.size());
    client_.pull_round(table_, range, time, keys, std::as_writable_bytes(std::span(visit.weights)),
                       [this, block, finish](const std::string& error) {
                         if (error.empty()) {
                           std::lock_guard lock(mutex_);
                           arrived_.push_back(block);
                         }
                         finish(error);
                       });
  }

  void take_arrived() {
    std::vector<int64_t> blocks;
    {
      std::lock_guard lock(mutex_);
      blocks.swap(arrived_);
    }
    for (int64_t block : blocks) problem_.set_weights(block, visits_[static_cast<size_t>(block)].weights);
  }

  bool filters(int64_t pass) const {
    return options_.kkt && pass % kFullPass != kFullPass - 1 && pass < options_.passes - kLastPasses;
  }

  void leave_out(int64_t block, Visit& visit) {
    const std::span<const Key> keys = problem_.keys(block);
    const std::span<const double> weights = problem_.weights(block);
    sparse::RowFilters filters(DataType::kFloat64, 2);
    // Keys are asked for in ascending order.
    auto is_zero = [&, at = size_t{0}](Key key) mutable {
      while (keys[at] < key) ++at;
      return weights[at] == 0;
    };
    filters.add(sparse::kkt_filter({.l1 = options_.l1, .margin = 0, .scale = static_cast<double>(workers_)},
                                   is_zero));
    sparse::RowFilters::Rows left = filters.apply(visit.keys, bytes_of(visit.pairs));
    report_.keys_left_out += filters.left_out("kkt");
    visit.keys = std::move(left.keys);
    const auto* values = reinterpret_cast<const double*>(left.values.data());
    visit.pairs.assign(values, values + left.values.size() / sizeof(double));
  }

  void note_pass(int64_t pass) {
    const double now = now_seconds();
    report_.passes[static_cast<size_t>(pass)] = {now - begun_, problem_.loss(),
                                                 options_.magnitude ? options_.magnitude->load() : 0};
    if (options_.progress) options_.progress(pass);
    report_.compute_seconds += now_seconds() - now;
  }

  sparse::Client& client_;
  int table_;
  LocalProblem& problem_;
  const SolverOptions& options_;
  int workers_;
  plan::DelayStream slowdown_;
  std::vector<Visit> visits_;
  Tasks::Id submitted_ = 0;
  double begun_ = 0;
  std::mutex mutex_;
  std::vector<int64_t> arrived_;  // blocks whose weights are to be taken; guarded by mutex_
  SolverReport report_;
};

}  // namespace

std::shared_ptr<const sparse::Rule> proximal_step(double l1, Magnitude magnitude) {
  auto step = [l1, magnitude](const sparse::RuleStep&, const sparse::RowBlock& rows) {
    const auto* pairs = static_cast<const double*>(rows.gradient);
    auto* weights = static_cast<double*>(rows.values);
    double change = 0;
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      const double g = pairs[2 * i], u = std::max(pairs[2 * i + 1], kLeastCurvature);
      const double moved = weights[i] - g / u;
      const double shrunk = std::copysign(std::max(0.0, std::abs(moved) - l1 / u), moved);
      change += std::abs(shrunk) - std::abs(weights[i]);
      weights[i] = shrunk;
    }
    magnitude->fetch_add(change);
  };
  return sparse::make_function(step, /*state_arrays=*/0, /*pushed=*/2);
}

SolverReport solve(sparse::Client& client, int table, LocalProblem& problem, int worker, int workers,
                   const SolverOptions& options) {
  if (options.passes < 1 || options.delay < 0 || !std::isfinite(options.l1) || options.l1 < 0)
    throw ConfigError("{} passes with a delay of {} and an L1 penalty of {}: out of range.", options.passes,
                      options.delay, options.l1);
  return Solver(client, table, problem, worker, workers, options).run();
}

}  // namespace yoke::ps::blocks
