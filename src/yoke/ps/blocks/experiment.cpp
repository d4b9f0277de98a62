#include "yoke/ps/blocks/experiment.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"

namespace yoke::ps::blocks {
namespace {

constexpr int kTable = 0;

sparse::ClientOptions client_options(const Experiment& experiment) {
  sparse::ClientOptions options;
  options.workers = static_cast<int>(experiment.problems.size());
  options.servers = experiment.servers;
  options.tables = {{.width = 1, .keys = experiment.keys, .type = DataType::kFloat64, .pushed = 2}};
  options.key_cache = experiment.key_cache;
  options.compress = experiment.compress;
  options.timeout = experiment.solver.timeout;
  return options;
}

void add(sparse::Traffic& sum, const sparse::Traffic& one) {
  sum.messages += one.messages;
  sum.sent += one.sent;
  sum.received += one.received;
  sum.keys_saved += one.keys_saved;
  sum.packed_saved += one.packed_saved;
}

// What the threads of a run share.
class Threads {
 public:
  explicit Threads(const Experiment& experiment) : experiment_(experiment) {
    const auto workers = static_cast<int>(experiment.problems.size());
    outcome_.workers.resize(experiment.problems.size());
    for (LocalProblem* problem : experiment.problems) {
      problem->reset();
      overlap_ = std::max(overlap_, problem->overlap());
    }
    std::vector<std::unique_ptr<Server>> servers;
    LocalGroup group(workers + experiment.servers, experiment.backend);  // goes first: it calls the servers
    for (int i = 0; i < experiment.servers; ++i) servers.push_back(make_server(group, workers, i));
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker)
      threads.emplace_back([&, worker] { guarded(group, worker); });
    for (std::thread& thread : threads) thread.join();
    for (auto& server : servers) end(*server);
    if (error_) std::rethrow_exception(error_);
    finish();
  }

  Outcome take() { return std::move(outcome_); }

 private:
  std::unique_ptr<Server> make_server(LocalGroup& group, int workers, int server) {
    ServerOptions options;
    options.workers = workers;
    options.servers = experiment_.servers;
    options.make_updater = make_adder();
    options.make_rule = [this](int) { return proximal_step(experiment_.solver.l1, magnitude_); };
    return std::make_unique<Server>(group.messenger(workers + server), std::move(options));
  }

  void note(std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }

  void guarded(LocalGroup& group, int worker) {
    try {
      work(group.messenger(worker), worker);
    } catch (const std::exception&) {
      note(std::current_exception());
      group.close(worker);
    }
  }

  void end(Server& server) {
    try {
      server.run();
    } catch (const std::exception&) {  // an error of a worker takes precedence
      note(std::current_exception());
    }
  }

  void work(comm::Messenger& messenger, int worker) {
    const auto index = static_cast<size_t>(worker);
    SolverOptions options = experiment_.solver;
    options.overlap = overlap_;
    if (!experiment_.slow.empty() && !experiment_.slow[index]) options.slowdown = {};
    options.magnitude = magnitude_;
    if (worker == 0) options.progress = experiment_.progress;
    sparse::Client client(messenger, client_options(experiment_));
    SolverReport report = solve(client, kTable, *experiment_.problems[index], worker,
                                static_cast<int>(experiment_.problems.size()), options);
    const sparse::Traffic moved = client.traffic();
    sparse::Client::Rows rows;
    // Its own last round is applied, and so are those before it; blocks that it has no features of may not
    // be.
    if (worker == 0) rows = client.pull_range(kTable, 0, experiment_.keys);
    std::lock_guard lock(mutex_);
    outcome_.workers[index] = std::move(report);
    add(outcome_.traffic, moved);
    if (worker == 0) rows_ = std::move(rows);
  }

  void finish() {
    double loss = 0;
    for (const LocalProblem* problem : experiment_.problems) loss += problem->loss();
    const auto* values = reinterpret_cast<const double*>(rows_.values.data());
    double magnitude = 0;
    for (size_t i = 0; i < rows_.keys.size(); ++i) {
      if (values[i] == 0) continue;
      outcome_.support.push_back(rows_.keys[i]);
      outcome_.weights.push_back(values[i]);
      magnitude += std::abs(values[i]);
    }
    outcome_.objective = loss + experiment_.solver.l1 * magnitude;
    for (size_t pass = 0; pass < static_cast<size_t>(experiment_.solver.passes); ++pass) {
      Outcome::Point point;
      for (const SolverReport& one : outcome_.workers) {
        point.seconds = std::max(point.seconds, one.passes[pass].seconds);
        point.objective += one.passes[pass].loss;
      }
      point.objective += experiment_.solver.l1 * outcome_.workers[0].passes[pass].magnitude;
      outcome_.curve.push_back(point);
    }
    outcome_.seconds = outcome_.curve.back().seconds;
    outcome_.curve.back().objective = outcome_.objective;
  }

  const Experiment& experiment_;
  double overlap_ = 0;
  Magnitude magnitude_ = std::make_shared<std::atomic<double>>(0);
  std::mutex mutex_;
  std::exception_ptr error_;
  sparse::Client::Rows rows_;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Experiment& experiment) {
  if (experiment.problems.empty() || experiment.servers < 1)
    throw ConfigError("{} workers and {} servers: use 1 or more.", experiment.problems.size(),
                      experiment.servers);
  return Threads(experiment).take();
}

}  // namespace yoke::ps::blocks
