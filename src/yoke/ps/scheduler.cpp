#include "yoke/ps/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/plan/policies/adasync.h"

namespace yoke::ps {

namespace {

// Exceptions of user callbacks must not interrupt an update halfway.
template <class Argument>
std::function<void(const Argument&)> guarded(std::function<void(const Argument&)> function) {
  if (!function) return {};
  return [function = std::move(function)](const Argument& argument) {
    try {
      function(argument);
    } catch (const std::exception& error) {
      log::error("the scheduler's callback failed: {}", error.what());
    } catch (...) {
      log::error("the scheduler's callback failed");
    }
  };
}

bool is_sane(const FinishedHead& head) {
  constexpr int64_t kMostSamples = int64_t{1} << 32;
  for (float seconds : {head.compute_seconds, head.push_seconds, head.pull_seconds})
    if (!(seconds >= 0) || !std::isfinite(seconds)) return false;
  return head.samples >= 0 && head.samples <= kMostSamples && !std::isnan(head.distance2);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options, SchedulerWire wire)
    : options_(std::move(options)),
      wire_(std::move(wire)),
      batches_(static_cast<size_t>(std::max(0, options_.policy.workers))),
      made_(now()) {
  options_.on_update = guarded(std::move(options_.on_update));
  options_.say = guarded(std::move(options_.say));
  options_.failed = guarded(std::move(options_.failed));
  plan::validate(options_.policy);
  const plan::RuleTraits& traits = plan::traits_of(options_.policy.rule);
  if (options_.adasync && traits.k != plan::RuleTraits::kGiven)
    throw ConfigError("ps.adasync = true with ps.policy = \"{}\": it has no K. Use a k_ rule.",
                      plan::to_string(options_.policy.rule));
  desks_.resize(static_cast<size_t>(options_.policy.workers));
  for (int worker = 0; worker < options_.policy.workers; ++worker)
    if (is_late(worker)) lost_early_.insert(worker);
}

double Scheduler::now() const {
  return options_.now ? options_.now() : now_seconds();
}

int64_t Scheduler::k() const {
  return plan::effective_k(policy_ ? policy_->options() : options_.policy);
}

void Scheduler::joined(int worker, int64_t version, int64_t life) {
  if (worker < 0 || static_cast<size_t>(worker) >= desks_.size())
    throw CommError("rank {} is not one of the {} workers", worker, desks_.size());
  Desk& own = desk(worker);
  own.here = true;
  own.computing = false;
  own.since = own.seen = now();
  own.life = life;
  own.leaving = false;
  const bool is_new = is_late(worker) && !own.known;
  own.known = true;
  if (life > 0) {
    own.time.lost = false;
    if (!is_new) ++own.time.rejoined;
  }
  if (stopped_) return wire_.stop(worker, stop_head());
  lost_early_.erase(worker);
  if (!policy_) {
    start_version_ = version;
    return begin_when_all_are_here();
  }
  if (warm_starting_ && worker != 0) return;
  obey(policy_->joined(worker));
  restore_k();
  send_off();
  if (life > 0 && options_.say)
    options_.say(fmt::format("worker {} {} at version {}; workers: {}", worker,
                             is_new ? "joined" : "rejoined", this->version(), policy_->alive()));
}

void Scheduler::set_loss_scale(const kernels::LossScale& scale) {
  if (!(scale.scale > 0) || !std::isfinite(scale.scale) || scale.tracker < 0 ||
      scale.tracker > std::numeric_limits<int32_t>::max())
    throw CommError("a loss scale of {} after {} steps is out of range", scale.scale, scale.tracker);
  if (!plan::traits_of(options_.policy.rule).cancels)
    throw CommError("workers have a loss scale of their own under {}", plan::to_string(options_.policy.rule));
  if (policy_) throw CommError("a loss scale of {} comes after the start of the run", scale.scale);
  scales_ = true;
  loss_scale_ = scale;
}

void Scheduler::begin_when_all_are_here() {
  auto here = static_cast<size_t>(
      std::count_if(desks_.begin(), desks_.end(), [](const Desk& one) { return one.here; }));
  if (here > 0 && here + lost_early_.size() == desks_.size()) begin();
}

void Scheduler::begin() {
  const int64_t version = start_version_;
  plan::PolicyOptions policy = options_.policy;
  warm_starting_ = options_.warm_start > version && desk(0).here;
  policy.workers = warm_starting_ ? 1 : policy.workers - static_cast<int>(lost_early_.size());
  // Batch rules collect K minibatches from however few workers there are.
  if (warm_starting_ || plan::traits_of(policy.rule).waits)
    policy.k = std::min<int64_t>(policy.k, policy.workers);
  for (; next_delay_ < options_.delay_schedule.size(); ++next_delay_) {
    if (options_.delay_schedule[next_delay_].from > version) break;
    policy.max_delay = options_.delay_schedule[next_delay_].max_delay;
  }
  policy_.emplace(policy, version);
  told_version_ = version;
  by_rounds_ = policy.rule == plan::Rule::kBoundedDelay && policy.max_delay == 0;
  begun_ = measured_from_ = looked_at_ = now();
  if (options_.updates > 0 && version >= options_.updates) return stop(0);
  if (options_.warm_up <= version) begin_measuring();
  for (int worker = 0; worker < static_cast<int>(desks_.size()); ++worker) {
    if (desk(worker).here && (!warm_starting_ || worker == 0)) obey(policy_->joined(worker));
  }
}

// Admits the other workers, at the current version.
void Scheduler::end_warm_start() {
  warm_starting_ = false;
  if (options_.say) options_.say(fmt::format("warm start ended at version {}", version()));
  for (int worker = 1; worker < static_cast<int>(desks_.size()); ++worker) {
    if (desk(worker).here) obey(policy_->joined(worker));
  }
  restore_k();
}

// K was limited by fewer workers than there are now.
void Scheduler::restore_k() {
  if (plan::traits_of(options_.policy.rule).k != plan::RuleTraits::kGiven) return;
  if (policy_->options().k < options_.policy.k) obey(policy_->set_k(options_.policy.k));
}

GrantReply Scheduler::finished(int worker, const FinishedHead& head) {
  GrantReply reply;
  reply.verdict = static_cast<int64_t>(plan::Verdict::kCancelled);
  if (stopped_ || was_sent_off(worker)) return reply;
  if (!policy_) throw CommError("worker {} has a gradient before it was given any work", worker);
  if (!std::isfinite(head.lr))
    throw CommError("worker {} has a gradient with a learning rate of {}; nothing was applied", worker,
                    head.lr);
  if (!is_sane(head))
    throw CommError("worker {} has a gradient of {} samples that took {} s; nothing was applied", worker,
                    head.samples, head.compute_seconds);
  if (head.overflow != 0 && !scales_)
    throw CommError("worker {} reports an overflow, but its losses are not scaled; nothing was applied",
                    worker);
  reply.update = updates_told_ + 1;
  const plan::Decision& decision = policy_->arrived({worker, head.version, head.minibatch});
  reply.verdict = static_cast<int64_t>(decision.verdict);
  reply.staleness = decision.staleness;
  if (decision.verdict == plan::Verdict::kStranger || decision.verdict == plan::Verdict::kNotIssued)
    throw CommError(
        "worker {}: minibatch {} of version {} was never assigned to it (the current version is {}); nothing "
        "was applied",
        worker, head.minibatch, head.version, policy_->version());
  if (decision.verdict != plan::Verdict::kAccepted) return reply;
  reply.scale = scale_of(head, decision.staleness);
  if (by_rounds_ && decision.update) reply.scale *= decision.update->weight;
  reply.combined = combines() ? 1 : 0;
  reply.in_order = in_order() ? 1 : 0;
  Desk& own = desk(worker);
  own.computing = false;
  own.since = own.seen = now();
  own.time.compute += static_cast<double>(head.compute_seconds);
  own.time.push += static_cast<double>(head.push_seconds);
  own.time.pull += static_cast<double>(head.pull_seconds);
  ++own.time.gradients;
  ++gradients_;
  samples_ += head.samples;
  if (measuring_) counts_.count(decision.staleness);
  auto place = pending_.end();
  // In worker order, so that sums of losses are reproducible.
  if (in_order())
    place = std::find_if(pending_.begin(), pending_.end(),
                         [&](const Contributor& other) { return other.worker > worker; });
  pending_losses_.insert(pending_losses_.begin() + (place - pending_.begin()), head.loss);
  if (options_.hands_out)
    pending_batches_.insert(pending_batches_.begin() + (place - pending_.begin()), batches_.use(worker));
  pending_.insert(place, {worker, head.minibatch, own.life});
  if (!in_order()) count_loss(head.loss);
  pending_staleness_ += decision.staleness;
  lr_ = head.lr;
  overflow_ |= head.overflow != 0;
  obey(decision);
  send_off();
  return reply;
}

void Scheduler::count_loss(double loss) {
  if (!std::isfinite(loss)) return;
  ++losses_;
  loss_total_ += loss;
}

// Whether an update consumes one gradient of each worker, all of one version.
bool Scheduler::in_order() const {
  const plan::RuleTraits& traits = plan::traits_of(options_.policy.rule);
  return by_rounds_ || (traits.waits && traits.cancels);
}

double Scheduler::scale_of(const FinishedHead& head, int64_t staleness) const {
  if (options_.stale_step == "inverse") return 1 / static_cast<double>(std::max<int64_t>(1, staleness));
  if (options_.stale_step != "distance" || head.distance2 < 0 || !(head.lr > 0)) return 1;
  double step = head.distance2 > 0 ? options_.distance_c / head.distance2 : options_.distance_max;
  return std::min(step, options_.distance_max) / head.lr;
}

void Scheduler::obey(const plan::Decision& decision) {
  // Copied, because the calls below may query the policy again, which invalidates the decision.
  const std::vector<plan::Release> releases = decision.releases;
  const bool updated = decision.update.has_value();
  if (updated) note_update(plan::Update(*decision.update));
  bool done = options_.updates > 0 && policy_->version() >= options_.updates;
  if (by_rounds_ && (done || !releases.empty())) tell_update(1);
  if (done) return stop(0);
  send_releases(releases);
  if (warm_starting_ && policy_->version() >= options_.warm_start) end_warm_start();
  if (updated && options_.adasync) turn_dial();
  if (updated) follow_schedule();
}

void Scheduler::note_update(const plan::Update& update) {
  auto count = static_cast<double>(std::max<size_t>(1, pending_.size()));
  last_loss_ = std::accumulate(pending_losses_.begin(), pending_losses_.end(), 0.0) / count;
  for (double loss : pending_losses_)
    if (in_order()) count_loss(loss);
  loss_sum_ += last_loss_;
  ++loss_count_;
  untold_.insert(untold_.end(), pending_.begin(), pending_.end());
  if (!by_rounds_) tell_update(update.weight);
  const double at = now();
  curve_.add({update.version, at - begun_, last_loss_, static_cast<int64_t>(pending_.size())});
  if (options_.on_update)
    options_.on_update({update.version, at - begun_, update.gradients, last_loss_,
                        static_cast<double>(pending_staleness_) / count, k(),
                        plan::traits_of(options_.policy.rule).gated
                            ? std::optional(policy_->options().max_delay)
                            : std::nullopt,
                        pending_batches_});
  if (measuring_) {
    ++counts_.updates;
    counts_.seconds = at - measured_from_;
  } else if (update.version >= options_.warm_up) {
    begin_measuring();
  }
  pending_.clear();
  pending_losses_.clear();
  pending_batches_.clear();
  pending_staleness_ = 0;
}

// Whether updates consume gradients of one version: there is one gradient to clip and to measure.
bool Scheduler::combines() const {
  return by_rounds_ || plan::traits_of(options_.policy.rule).cancels;
}

// Updates are numbered without gaps and sent before the releases that depend on them; a worker's push names
// the number, so a server can tell which update it belongs to, whichever message arrives first.
void Scheduler::tell_update(double weight) {
  if (policy_->version() == told_version_) return;
  told_version_ = policy_->version();
  skipped_ = std::exchange(overflow_, false);
  if (scales_) loss_scale_ = kernels::next_loss_scale(loss_scale_, skipped_);
  if (measuring_ && skipped_) ++counts_.skipped;
  double clip_norm = combines() && !skipped_ ? options_.clip_norm : 0;
  wire_.update({++updates_told_, told_version_, weight, lr_, clip_norm, skipped_ ? 1 : 0}, untold_);
  untold_.clear();
}

// Workers that are waiting now also waited before the measurement.
void Scheduler::begin_measuring() {
  measuring_ = true;
  measured_from_ = now();
  counts_ = {};
  for (Desk& one : desks_) {
    WorkerTime none;
    none.lost = one.time.lost;
    none.rejoined = one.time.rejoined;
    one.time = none;
    if (!one.computing) one.since = measured_from_;
  }
}

void Scheduler::send_releases(const std::vector<plan::Release>& releases) {
  const double at = now();
  for (const plan::Release& release : releases) {
    Desk& own = desk(release.worker);
    if (release.cancels) {
      ++own.time.cancelled;
      own.time.cancelled_time += at - own.since;
      ++counts_.cancelled;
    } else {
      own.time.idle += at - own.since;
    }
    if (release.fetch) ++counts_.pulls;
    own.since = own.seen = at;
    own.computing = !own.leaving;
    if (own.leaving) continue;  // send_off()
    const int64_t batch = options_.hands_out ? batches_.give(release.worker) : 0;
    int64_t flags = (batch << kBatchShift) | (release.fetch ? kFetchFlag : 0) |
                    (release.cancels ? kCancelFlag : 0) | (skipped_ ? kSkippedFlag : 0);
    wire_.release(release.worker, {release.version, release.minibatch, gradients_, flags, losses_,
                                   loss_total_, samples_, scale_head()});
  }
}

void Scheduler::turn_dial() {
  const double at = now();
  if (stopped_ || at - looked_at_ < options_.adasync_seconds || loss_count_ == 0) return;
  double loss = loss_sum_ / static_cast<double>(loss_count_);
  looked_at_ = at;
  loss_sum_ = 0;
  loss_count_ = 0;
  if (!(loss > 0) || !std::isfinite(loss)) return;
  if (first_loss_ == 0) first_loss_ = loss;
  int64_t wanted = plan::adasync_whole_k(options_.policy.rule, std::max(1, policy_->alive()),
                                         options_.policy.k, first_loss_, loss);
  if (wanted == policy_->options().k) return;
  if (options_.say) options_.say(fmt::format("K is {} now: the loss is {:.4g}", wanted, loss));
  obey(policy_->set_k(wanted));
}

void Scheduler::follow_schedule() {
  const std::vector<plan::DelayStep>& schedule = options_.delay_schedule;
  if (!plan::traits_of(options_.policy.rule).gated) return;
  if (next_delay_ < schedule.size() && schedule[next_delay_].from <= policy_->version())
    set_max_delay(schedule[next_delay_++].max_delay);
}

void Scheduler::set_max_delay(int64_t max_delay) {
  plan::Policy(options_.policy).set_max_delay(max_delay);  // throws if not supported
  options_.policy.max_delay = max_delay;
  if (!policy_) options_.delay_schedule.clear();
  if (!policy_ || stopped_) return;
  // Servers apply what has arrived of a round before rounds end or begin.
  if (by_rounds_) tell_update(1);
  by_rounds_ = options_.policy.rule == plan::Rule::kBoundedDelay && max_delay == 0;
  if (options_.say)
    options_.say(fmt::format(
        "the delay is {} from version {} on",
        max_delay == plan::PolicyOptions::kUnbounded ? "not bounded" : fmt::format("at most {}", max_delay),
        policy_->version()));
  obey(policy_->set_max_delay(max_delay));
  send_off();
}

void Scheduler::left(int worker, bool lost, const std::string& why) {
  if (worker < 0 || static_cast<size_t>(worker) >= desks_.size()) return;
  Desk& own = desk(worker);
  bool was_here = std::exchange(own.here, false);
  if (!stopped_) batches_.give_back(worker);
  if (is_late(worker) && !own.known) {
    if (lost && options_.say && !stopped_)
      options_.say(fmt::format("worker {} was lost before it had joined ({})", worker, why));
    return;
  }
  own.time.lost |= lost;
  if (lost && options_.say && !stopped_)
    options_.say(
        fmt::format("worker {} is lost ({}); workers: {}", worker, why,
                    std::max(0, (policy_ ? policy_->alive() : static_cast<int>(desks_.size())) - 1)));
  if (!policy_) {
    lost_early_.insert(worker);
    return begin_when_all_are_here();
  }
  if (!was_here || stopped_) return;
  obey(policy_->left(worker));
  send_off();
  if (lost) check_enough(worker);
}

void Scheduler::stop(int64_t signal) {
  if (std::exchange(stopped_, true)) return;
  stop_signal_ = signal;
  for (Desk& one : desks_) {
    if (one.here && !one.computing) one.time.idle += now() - one.since;
  }
  for (int worker = 0; worker < static_cast<int>(desks_.size()); ++worker) {
    if (desk(worker).here) wire_.stop(worker, stop_head());
  }
  if (wire_.ended) wire_.ended();
}

StopHead Scheduler::stop_head() const {
  return {version(),  stop_signal_, losses_,      loss_total_,
          gradients_, samples_,     scale_head(), skipped_ ? 1 : 0};
}

ScaleHead Scheduler::scale_head() const {
  if (!scales_) return {};
  return {static_cast<float>(loss_scale_.scale), static_cast<int32_t>(loss_scale_.tracker)};
}

void Scheduler::seen(int worker) {
  desk(worker).seen = now();
}

LateReply Scheduler::who_is_late() const {
  LateReply latest;
  const double at = now();
  for (size_t worker = 0; worker < desks_.size() && !stopped_; ++worker) {
    const Desk& one = desks_[worker];
    bool joins = !policy_ && !one.here && !lost_early_.contains(static_cast<int>(worker));
    if (!joins && !(one.here && one.computing)) continue;
    double seconds = at - (joins ? made_ : one.seen);
    if (latest.worker < 0 || seconds > latest.seconds)
      latest = {static_cast<int64_t>(worker), seconds, joins ? kNotJoined : kComputes};
  }
  return latest;
}

std::vector<WorkerStatus> Scheduler::worker_status() const {
  std::vector<WorkerStatus> list;
  for (size_t worker = 0; worker < desks_.size(); ++worker) {
    const Desk& one = desks_[worker];
    if (is_late(static_cast<int>(worker)) && !one.known) continue;
    WorkerStatus status;
    status.id = static_cast<int64_t>(worker);
    status.clock = one.time.gradients;
    status.compute_seconds = one.time.compute;
    if (policy_) {
      const plan::Standing standing = policy_->standing(static_cast<int>(worker));
      status.minibatch = standing.minibatch;
      status.staleness = one.here && standing.version >= 0 ? policy_->version() - standing.version : 0;
    }
    if (one.here)
      status.state = one.leaving ? "leaving" : one.computing ? "computing" : "waiting";
    else if (one.time.lost)
      status.state = "lost";
    else if (policy_)
      status.state = "left";
    list.push_back(status);
  }
  return list;
}

Accounting Scheduler::accounting() const {
  Accounting all = counts_;
  all.losses = curve_.points();
  if (options_.hands_out) all.batches = batches_.counts();
  for (size_t worker = 0; worker < desks_.size(); ++worker) {
    const Desk& one = desks_[worker];
    if (is_late(static_cast<int>(worker)) && !one.known) continue;
    all.workers.push_back(one.time);
    all.workers.back().id = static_cast<int64_t>(worker);
    bool waits = one.here && !one.computing && policy_ && !stopped_;
    if (waits) all.workers.back().idle += now() - one.since;
  }
  return all;
}

}  // namespace yoke::ps
