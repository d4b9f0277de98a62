#include "yoke/plan/policies/policy.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::plan {

const char* to_string(Verdict verdict) {
  constexpr const char* kNames[] = {"none", "accepted", "cancelled", "duplicate", "stranger", "not issued"};
  return kNames[static_cast<size_t>(verdict)];
}

Policy::Policy(const PolicyOptions& options, int64_t version)
    : options_(options), traits_(traits_of(options.rule)), version_(version) {
  validate(options);
  if (traits_.k == RuleTraits::kGiven) traits_.k = options.k;
}

const Decision& Policy::joined(int worker) {
  YOKE_CHECK(worker >= 0, "worker {} cannot join", worker);
  clear();
  auto index = static_cast<size_t>(worker);
  if (index >= workers_.size()) workers_.resize(index + 1);
  remove(worker);
  Worker& self = workers_[index];
  self.state = State::kWaiting;
  self.version = -1;
  bool next_round = waits_for_next_round();
  self.clock = slowest_clock_ + (next_round ? 1 : 0);
  at_slowest_ += next_round ? 0 : 1;
  ++alive_;
  if (next_round) {
    waiting_.push_back(worker);
    return decision_;
  }
  if (started_) {
    release(worker);
    share_weights();
    return decision_;
  }
  waiting_.push_back(worker);
  if (alive_ < options_.workers) return decision_;
  started_ = true;
  std::sort(waiting_.begin(), waiting_.end());
  release_waiting();
  return decision_;
}

// With delay 0 all workers of a round share one weight, fixed when it starts: a newcomer joins the next
// round.
bool Policy::waits_for_next_round() const {
  if (!started_ || alive_ == 0) return false;
  if (traits_.gated) return options_.max_delay == 0;
  return options_.keeps_rounds && traits_.waits && traits_.cancels && computing_ + accumulated_ > 0;
}

const Decision& Policy::left(int worker) {
  clear();
  if (worker >= 0 && static_cast<size_t>(worker) < workers_.size()) remove(worker);
  return decision_;
}

const Decision& Policy::arrived(const GradientTags& gradient) {
  clear();
  decision_.verdict = judge(gradient);
  if (decision_.verdict != Verdict::kAccepted) return decision_;
  Worker& self = workers_[static_cast<size_t>(gradient.worker)];
  decision_.staleness = version_ - gradient.version;
  self.state = State::kWaiting;
  self.last_counted = gradient.minibatch;
  --computing_;
  ++accumulated_;
  waiting_.push_back(gradient.worker);
  if (traits_.gated) advance_clock(self);
  if (complete()) update(self.weight);
  if (!traits_.waits || decision_.update) release_waiting();
  return decision_;
}

const Decision& Policy::set_k(int64_t k) {
  if (traits_of(options_.rule).k != RuleTraits::kGiven)
    throw ConfigError("policy {} has no k to change.", to_string(options_.rule));
  if (k < 1) throw ConfigError("policy {}: k = {}: expected at least 1.", to_string(options_.rule), k);
  clear();
  traits_.k = options_.k = k;
  if (accumulated_ > 0 && complete()) {
    update(1);
    release_waiting();
  }
  return decision_;
}

const Decision& Policy::set_max_delay(int64_t max_delay) {
  if (!traits_.gated) throw ConfigError("policy {} has no max_delay to change.", to_string(options_.rule));
  if (max_delay < 0)
    throw ConfigError("policy {}: max_delay = {}: expected 0 or more.", to_string(options_.rule), max_delay);
  clear();
  options_.max_delay = max_delay;
  if (started_) release_waiting();
  return decision_;
}

Standing Policy::standing(int worker) const {
  if (worker < 0 || static_cast<size_t>(worker) >= workers_.size()) return {};
  const Worker& one = workers_[static_cast<size_t>(worker)];
  return {one.version, one.minibatch};
}

void Policy::clear() {
  decision_.verdict = Verdict::kNone;
  decision_.staleness = 0;
  decision_.update.reset();
  decision_.releases.clear();
}

Verdict Policy::judge(const GradientTags& gradient) const {
  if (gradient.worker < 0 || static_cast<size_t>(gradient.worker) >= workers_.size())
    return Verdict::kStranger;
  const Worker& self = workers_[static_cast<size_t>(gradient.worker)];
  if (self.state == State::kAbsent) return Verdict::kStranger;
  if (gradient.version > version_ || gradient.version < 0 || gradient.minibatch < 0 ||
      gradient.minibatch > self.minibatch)
    return Verdict::kNotIssued;
  // Minibatch numbers of a worker increase.
  if (gradient.minibatch <= self.last_counted) return Verdict::kDuplicate;
  if (gradient.minibatch != self.minibatch || self.state != State::kComputing) return Verdict::kCancelled;
  return gradient.version == self.version ? Verdict::kAccepted : Verdict::kNotIssued;
}

// Workers that waited for this one continue.
void Policy::remove(int worker) {
  Worker& self = workers_[static_cast<size_t>(worker)];
  if (self.state == State::kAbsent) return;
  if (self.state == State::kComputing)
    --computing_;
  else
    std::erase(waiting_, worker);
  self.state = State::kAbsent;
  --alive_;
  if (self.clock == slowest_clock_ && --at_slowest_ == 0) find_slowest();
  if (!started_) return;
  if (traits_.waits && accumulated_ > 0 && complete()) update(1);
  const bool round_is_empty = options_.keeps_rounds && traits_.waits && computing_ + accumulated_ == 0;
  if (traits_.gated || decision_.update || round_is_empty) release_waiting();
}

bool Policy::complete() const {
  // If nobody computes, nothing more can arrive: update with what is there instead of deadlocking.
  return accumulated_ >= traits_.k || (traits_.waits && computing_ == 0);
}

void Policy::update(double weight) {
  ++version_;
  if (!traits_.gated) weight = 1.0 / static_cast<double>(accumulated_);
  decision_.update = Update{version_, accumulated_, weight};
  accumulated_ = 0;
  if (!traits_.cancels) return;
  // All workers restart, in the order of their numbers: O(workers), as many as are released.
  waiting_.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.state == State::kAbsent) continue;
    worker.void_work = worker.state == State::kComputing;
    worker.state = State::kWaiting;
    waiting_.push_back(static_cast<int>(i));
  }
  computing_ = 0;
}

void Policy::release(int worker) {
  Worker& self = workers_[static_cast<size_t>(worker)];
  decision_.releases.push_back({worker, version_, next_minibatch_, self.version != version_, self.void_work});
  self.state = State::kComputing;
  self.void_work = false;
  self.version = version_;
  self.minibatch = next_minibatch_++;
  ++computing_;
}

void Policy::release_waiting() {
  size_t kept = 0;
  for (int worker : waiting_) {
    if (!traits_.gated || gate_open(workers_[static_cast<size_t>(worker)]))
      release(worker);
    else
      waiting_[kept++] = worker;
  }
  waiting_.resize(kept);
  share_weights();
}

// Gradients of workers that were released together are of the same parameters: bounded_delay averages them,
// so that delay 0 equals sync and an unbounded delay equals async.
void Policy::share_weights() {
  if (options_.rule != Rule::kBoundedDelay) return;
  double share = options_.max_delay == PolicyOptions::kUnbounded
                     ? 1.0
                     : 1.0 / static_cast<double>(std::max<size_t>(1, decision_.releases.size()));
  for (const Release& release : decision_.releases)
    workers_[static_cast<size_t>(release.worker)].weight = share;
}

bool Policy::gate_open(const Worker& worker) const {
  return worker.clock - slowest_clock_ <= options_.max_delay;
}

void Policy::advance_clock(Worker& worker) {
  bool was_slowest = worker.clock++ == slowest_clock_;
  if (was_slowest && --at_slowest_ == 0) find_slowest();
}

// O(workers), amortised O(1): the slowest clock advances once while all workers push once.
void Policy::find_slowest() {
  at_slowest_ = 0;
  for (const Worker& worker : workers_) {
    if (worker.state == State::kAbsent) continue;
    if (at_slowest_ == 0 || worker.clock < slowest_clock_) {
      slowest_clock_ = worker.clock;
      at_slowest_ = 0;
    }
    if (worker.clock == slowest_clock_) ++at_slowest_;
  }
}

}  // namespace yoke::plan
