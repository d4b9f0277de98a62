#include "yoke/sim/ps_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/sim/ps_finish_times.h"
#include "yoke/sim/shared_link.h"

namespace yoke::sim {
namespace {

constexpr int64_t kUpdatesBetweenReports = 1 << 18;
constexpr uint64_t kNoiseSeed = 0x6e6f697365;  // "noise"

// Parameters, accumulator, and each worker's copy, by coordinate.
class Objective {
 public:
  explicit Objective(const PsSimulation& of)
      : options_(*of.objective),
        w_(static_cast<size_t>(of.dimensions), of.start),
        sum_(w_.size(), 0),
        held_(static_cast<size_t>(of.policy.workers), w_),
        random_(derive_seed(of.seed, kNoiseSeed)) {}

  void fetch(int worker) { held_[static_cast<size_t>(worker)] = w_; }
  void accumulate(int worker, double factor) {
    const std::vector<double>& held = held_[static_cast<size_t>(worker)];
    for (size_t i = 0; i < w_.size(); ++i) sum_[i] += factor * (held[i] + options_.noise * random_.normal());
  }
  void update(double weight) {
    double squares = 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      w_[i] -= options_.step * weight * sum_[i];
      sum_[i] = 0;
      squares += w_[i] * w_[i];
    }
    now_ = squares / 2 / static_cast<double>(w_.size());
    loss_ += now_;
  }
  void begin_measuring() { loss_ = 0; }
  double loss() const { return loss_; }  // sum
  double now() const { return now_; }

 private:
  Quadratic options_;
  double loss_ = 0, now_ = 0;
  std::vector<double> w_, sum_;
  std::vector<std::vector<double>> held_;
  Random random_;
};

class Clock {
 public:
  explicit Clock(const PsSimulation& simulation)
      : simulation_(simulation),
        policy_(simulation.policy),
        finish_(simulation.policy.workers),
        running_(static_cast<size_t>(simulation.policy.workers)),
        waiting_since_(running_.size(), 0),
        begun_(running_.size(), 0),
        waiting_(running_.size(), true),
        away_(running_.size(), false),
        up_(simulation.bandwidth, simulation.servers, simulation.policy.workers),
        down_(up_) {
    for (const Absence& one : simulation.absences) {
      comings_.push_back({one.from, one.worker, /*joins=*/false});
      comings_.push_back({one.until, one.worker, /*joins=*/true});
    }
    std::stable_sort(comings_.begin(), comings_.end(),
                     [](const Coming& a, const Coming& b) { return a.time < b.time; });
    for (int worker = 0; worker < simulation.policy.workers; ++worker) {
      bool slow = simulation.slow.empty() || simulation.slow[static_cast<size_t>(worker)];
      plan::DelayLaw law = slow ? simulation.law : plan::DelayLaw();
      if (!(simulation.compute + law.mean(simulation.compute) > 0))
        throw ConfigError("worker {}: its minibatches take no time: set a compute time or a delay law.",
                          worker);
      delays_.emplace_back(law, simulation.seed, worker);
      links_.push_back(plan::link_delays(slow ? simulation.link : plan::DelayLaw(), simulation.seed, worker));
    }
    if (simulation.objective) objective_.emplace(simulation);
  }

  PsOutcome run() {
    for (int worker = 0; worker < simulation_.policy.workers; ++worker) obey(policy_.joined(worker));
    while (policy_.version() < simulation_.warm_up) step();
    begin_measuring();
    for (int64_t done = 0; done < simulation_.updates;) {
      done = std::min(simulation_.updates, done + kUpdatesBetweenReports);
      while (policy_.version() < simulation_.warm_up + done) step();
      if (simulation_.progress) simulation_.progress(done);
    }
    return finish();
  }

 private:
  struct Coming {
    double time;
    int worker;
    bool joins;
  };

  bool has_links() const { return simulation_.bandwidth > 0 && simulation_.bytes > 0; }

  // The next event: a worker joins or leaves, has its parameters, has computed, or its gradient arrives.
  void step() {
    const double computed = finish_.time(finish_.first());
    const double next = std::min({computed, up_.first_time(), down_.first_time()});
    if (next_coming_ < comings_.size() && comings_[next_coming_].time <= next)
      return come_or_go(comings_[next_coming_++]);
    now_ = next;
    if (next == down_.first_time()) {
      const int worker = down_.first();
      down_.end(worker, now_);
      return compute(worker);
    }
    if (next == up_.first_time()) {
      const int worker = up_.first();
      up_.end(worker, now_);
      return arrived(worker);
    }
    const int worker = finish_.first();
    finish_.set(worker, FinishTimes::kNever);
    if (!has_links()) return arrived(worker);
    up_.begin(worker, now_, static_cast<double>(simulation_.bytes));
  }

  void compute(int worker) {
    auto index = static_cast<size_t>(worker);
    begun_[index] = now_;
    finish_.set(worker, now_ + simulation_.compute + delays_[index].next(simulation_.compute) +
                            links_[index].next(0));
  }

  void arrived(int worker) {
    auto index = static_cast<size_t>(worker);
    waiting_since_[index] = now_;
    waiting_[index] = true;
    const plan::Decision& decision = policy_.arrived(running_[index]);
    YOKE_CHECK(decision.verdict == plan::Verdict::kAccepted, "worker {}: its gradient is {}", worker,
               to_string(decision.verdict));
    count(decision.staleness);
    if (simulation_.on_minibatch)
      simulation_.on_minibatch({worker, begun_[index], now_, decision.staleness, /*cancelled=*/false});
    if (objective_) {
      const bool less = simulation_.inverse_staleness && decision.staleness > 1;
      objective_->accumulate(worker, less ? 1 / static_cast<double>(decision.staleness) : 1);
    }
    obey(decision);
  }

  void come_or_go(const Coming& coming) {
    auto index = static_cast<size_t>(coming.worker);
    now_ = coming.time;
    if (!coming.joins && waiting_[index]) idle_ += now_ - waiting_since_[index];
    stop(coming.worker);
    waiting_since_[index] = now_;
    waiting_[index] = true;
    away_[index] = !coming.joins;
    obey(coming.joins ? policy_.joined(coming.worker) : policy_.left(coming.worker));
  }

  // Whatever the worker does.
  void stop(int worker) {
    finish_.set(worker, FinishTimes::kNever);
    up_.end(worker, now_);
    down_.end(worker, now_);
  }

  void obey(const plan::Decision& decision) {
    const bool updated = decision.update.has_value();
    if (updated && objective_) objective_->update(decision.update->weight);
    for (const plan::Release& release : decision.releases) {
      auto index = static_cast<size_t>(release.worker);
      if (release.cancels) {
        ++outcome_.cancelled;
        if (simulation_.on_minibatch)
          simulation_.on_minibatch({release.worker, begun_[index], now_, 0, /*cancelled=*/true});
      } else {
        idle_ += now_ - waiting_since_[index];
      }
      if (release.fetch) ++outcome_.pulls;
      if (release.fetch && objective_) objective_->fetch(release.worker);
      running_[index] = {release.worker, release.version, release.minibatch};
      stop(release.worker);
      waiting_[index] = false;
      if (release.fetch && has_links())
        down_.begin(release.worker, now_, static_cast<double>(simulation_.bytes));
      else
        compute(release.worker);
    }
    if (!updated || !simulation_.on_update) return;
    const int64_t k = simulation_.on_update(now_, objective_ ? objective_->now() : 0);
    if (k > 0 && k != policy_.options().k) obey(policy_.set_k(k));
  }

  void count(int64_t staleness) {
    ++outcome_.gradients;
    staleness_sum_ += staleness;
    size_t bin = std::min(static_cast<size_t>(staleness), PsOutcome::kBins - 1);
    if (bin >= outcome_.staleness.size()) outcome_.staleness.resize(bin + 1);
    ++outcome_.staleness[bin];
  }

  // Workers that are waiting now also waited before the measurement.
  void begin_measuring() {
    outcome_ = {};
    staleness_sum_ = 0;
    begin_ = now_;
    idle_ = -waiting_time();
    if (objective_) objective_->begin_measuring();
  }

  double waiting_time() const {
    double sum = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (waiting_[i] && !away_[i]) sum += now_ - waiting_since_[i];
    }
    return sum;
  }

  PsOutcome finish() {
    idle_ += waiting_time();
    outcome_.updates = simulation_.updates;
    outcome_.seconds = now_ - begin_;
    int64_t messages = outcome_.gradients + outcome_.pulls;
    if (simulation_.bytes > std::numeric_limits<int64_t>::max() / messages)
      throw ConfigError("bytes = {}: {} messages of that size are more than can be counted.",
                        simulation_.bytes, messages);
    outcome_.bytes = messages * simulation_.bytes;
    outcome_.mean_staleness = static_cast<double>(staleness_sum_) / static_cast<double>(outcome_.gradients);
    double all = outcome_.seconds * static_cast<double>(running_.size());
    outcome_.idle_fraction = all > 0 ? std::max(0.0, idle_ / all) : 0;
    if (objective_) {
      outcome_.loss_floor = objective_->loss() / static_cast<double>(simulation_.updates);
      if (!std::isfinite(*outcome_.loss_floor))
        throw ConfigError("the iterates diverge: the step {} is too large for this staleness.",
                          simulation_.objective->step);
    }
    return std::move(outcome_);
  }

  const PsSimulation& simulation_;
  plan::Policy policy_;
  FinishTimes finish_;
  std::vector<plan::GradientTags> running_;  // [worker]
  std::vector<double> waiting_since_;        // [worker]
  std::vector<double> begun_;                // [worker]: its current minibatch
  std::vector<bool> waiting_;                // [worker]: for the policy
  std::vector<bool> away_;                   // [worker]
  SharedLink up_, down_;                     // gradients, parameters
  std::vector<Coming> comings_;              // in order of time
  size_t next_coming_ = 0;
  std::vector<plan::DelayStream> delays_, links_;  // [worker]
  std::optional<Objective> objective_;
  PsOutcome outcome_;
  double now_ = 0, begin_ = 0, idle_ = 0;
  int64_t staleness_sum_ = 0;
};

}  // namespace

double PsOutcome::fresh() const {
  if (gradients == 0) return 0;
  return static_cast<double>(staleness.front()) / static_cast<double>(gradients);
}

PsOutcome simulate_ps(const PsSimulation& simulation) {
  if (simulation.updates < 1) throw ConfigError("updates = {}: expected at least 1.", simulation.updates);
  YOKE_CHECK(
      simulation.slow.empty() || simulation.slow.size() == static_cast<size_t>(simulation.policy.workers),
      "{} flags for {} workers", simulation.slow.size(), simulation.policy.workers);
  for (const Absence& one : simulation.absences)
    YOKE_CHECK(one.worker >= 0 && one.worker < simulation.policy.workers && one.from < one.until,
               "worker {} is away from {} to {}", one.worker, one.from, one.until);
  YOKE_CHECK(simulation.dimensions >= 1, "{} dimensions", simulation.dimensions);
  plan::validate(simulation.policy);
  if (!std::isfinite(simulation.bandwidth) || simulation.bandwidth < 0 || simulation.servers < 1)
    throw ConfigError("{} servers with links of {} bytes/s: out of range.", simulation.servers,
                      simulation.bandwidth);
  return Clock(simulation).run();
}

}  // namespace yoke::sim
