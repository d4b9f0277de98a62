#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/ps/bench.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

constexpr uint64_t kNoiseSeed = 0x6e6f697365;  // "noise"
constexpr int64_t kUpdatesBetweenReports = 64;

// Server side: plain SGD, with the loss evaluated after each measured update.
struct Floor {
  double sum = 0;
  int64_t count = 0;
};

MakeUpdater make_sgd_with_floor(int64_t warm_up, Floor& floor) {
  return [warm_up, &floor](DataType, int64_t begin, int64_t) {
    return make_custom([warm_up, &floor, begin](const UpdateStep& step, DataType, const void* gradient,
                                                const void* from, void* to) {
      const auto *g = static_cast<const double*>(gradient), *w = static_cast<const double*>(from);
      auto* out = static_cast<double*>(to);
      for (int64_t i = 0; i < step.count; ++i) out[i] = w[i] - step.lr * step.weight * g[i];
      if (begin != 0 || step.version <= warm_up) return;
      floor.sum += out[0] * out[0] / 2;
      ++floor.count;
    })(DataType::kFloat64, begin, 0);
  };
}

class Run {
 public:
  explicit Run(const PolicyBench& bench)
      : bench_(bench),
        elements_(std::max<int64_t>(1, bench.bytes / static_cast<int64_t>(sizeof(double)))),
        group_(bench.policy.workers + bench.servers, bench.backend) {}

  PolicyBenchResult run() {
    for (int server = 0; server < bench_.servers; ++server) make_server(server);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < bench_.policy.workers; ++worker)
      threads.emplace_back([this, worker] {
        try {
          work(worker);
        } catch (const std::exception&) {
          fail();
          group_.close(worker);
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (auto& server : servers_) {
      try {
        server->run();
      } catch (const std::exception&) {  // an error of a worker takes precedence
        fail();
      }
    }
    if (error_) std::rethrow_exception(error_);
    return result();
  }

 private:
  void make_server(int server) {
    ServerOptions options;
    options.workers = bench_.policy.workers;
    options.servers = bench_.servers;
    options.make_updater = make_sgd_with_floor(bench_.warm_up, floor_);
    options.scheduler.policy = bench_.policy;
    options.scheduler.updates = bench_.warm_up + bench_.updates;
    options.scheduler.warm_up = bench_.warm_up;
    options.scheduler.on_update = [this](const UpdateRecord& record) {
      if (bench_.progress && record.version % kUpdatesBetweenReports == 0)
        bench_.progress(std::max<int64_t>(0, record.version - bench_.warm_up));
    };
    options.report = [this](const Accounting& counts, int64_t, int64_t) {
      counts_ = counts;
      return std::string();
    };
    servers_.push_back(
        std::make_unique<Server>(group_.messenger(bench_.policy.workers + server), std::move(options)));
  }

  void work(int worker) {
    ::prctl(PR_SET_TIMERSLACK, 1);  // otherwise the kernel adds 50 us to every sleep
    auto index = static_cast<size_t>(worker);
    const bool slow = bench_.slow.empty() || bench_.slow[index];
    plan::DelayLaw law = slow ? bench_.law : plan::DelayLaw();
    if (!(bench_.compute + law.mean(bench_.compute) > 0))
      throw ConfigError("worker {}: its minibatches take no time: set a compute time or a delay law.",
                        worker);
    plan::DelayStream delays(law, bench_.seed, worker);
    plan::DelayStream links = plan::link_delays(slow ? bench_.link : plan::DelayLaw(), bench_.seed, worker);
    Random noise(derive_seed(bench_.seed, kNoiseSeed, index));
    std::vector<double> parameters(static_cast<size_t>(elements_)), gradient(parameters.size(), 0);
    Learner learner(group_.messenger(worker), learner_options());
    if (worker == 0) learner.assign(0, parameters.data(), 0, 0);
    learner.join();
    double step = bench_.objective ? bench_.objective->step : 0.1;
    while (learner.wait()) {
      double seconds = bench_.compute + delays.next(bench_.compute);
      if (!learner.pull(parameters.data()) || !learner.sleep(seconds)) continue;
      if (const double late = links.next(0); late > 0 && !learner.sleep(late)) continue;
      if (bench_.objective) gradient[0] = parameters[0] + bench_.objective->noise * noise.normal();
      learner.push({gradient.data(), parameters[0] * parameters[0] / 2, step, seconds});
    }
    if (worker == 0) learner.report();
    learner.goodbye();
  }

  LearnerOptions learner_options() const {
    LearnerOptions options;
    options.workers = bench_.policy.workers;
    options.servers = bench_.servers;
    options.tensors = {elements_};
    options.type = DataType::kFloat64;
    options.one_version =
        bench_.policy.rule == plan::Rule::kSync || plan::traits_of(bench_.policy.rule).cancels;
    return options;
  }

  void fail() {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }

  PolicyBenchResult result() const {
    PolicyBenchResult result;
    result.counts = counts_;
    result.bytes = (counts_.gradients + counts_.pulls) * elements_ * static_cast<int64_t>(sizeof(double));
    int64_t gradients = 0;
    for (const WorkerTime& worker : counts_.workers) {
      result.push_seconds += worker.push;
      result.pull_seconds += worker.pull;
      gradients += worker.gradients;
    }
    result.push_seconds /= static_cast<double>(std::max<int64_t>(1, gradients));
    result.pull_seconds /= static_cast<double>(std::max<int64_t>(1, gradients));
    for (const auto& server : servers_) result.server_cpu_seconds += server->numbers().cpu_seconds;
    if (bench_.objective && floor_.count > 0) {
      result.loss_floor = floor_.sum / static_cast<double>(floor_.count);
      if (!std::isfinite(*result.loss_floor))
        throw ConfigError("the iterates diverge: the step {} is too large for this staleness.",
                          bench_.objective->step);
    }
    return result;
  }

  const PolicyBench& bench_;
  int64_t elements_;
  Floor floor_;
  Accounting counts_;
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::unique_ptr<Server>> servers_;
  LocalGroup group_;  // destroyed first: its threads call the servers
};

}  // namespace

PolicyBenchResult bench_policy(const PolicyBench& bench) {
  if (bench.updates < 1) throw ConfigError("updates = {}: expected at least 1.", bench.updates);
  plan::validate(bench.policy);
  return Run(bench).run();
}

}  // namespace yoke::ps
