// The part of Learner that moves ranges while the worker computes.
//
//   worker thread      begin_push   push_range …              end_push  wait  begin_pull  await_range …
//   end_pull messenger's thread     announcement ─▶ grant ─▶ pushes ─▶ acknowledged ─┬─▶ pulls ─▶ arrived
//                                          release of the next version ─────┘
//
// Three flights, each of which triggers the next: the announcement, the pushes of complete ranges, and the
// pulls of ranges whose push was acknowledged. The release may arrive before the grant. A pull that waits at
// its server occupies a place in the window, so a range is not asked for before its own gradient is there.
#include <algorithm>
#include <atomic>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/ps/learner.h"

namespace yoke::ps {

using comm::Message;

class Learner::Overlap {
 public:
  explicit Overlap(Learner& learner) : learner_(learner) {
    std::lock_guard lock(learner_.inbox_->mutex);
    learner_.inbox_->released = [this](const ReleaseHead& head) { on_release(head); };
  }
  ~Overlap() {
    {
      std::lock_guard lock(learner_.inbox_->mutex);
      learner_.inbox_->released = nullptr;
    }
    forget();
  }

  void begin_push(const Gradient& gradient, void* parameters) {
    forget();
    FlightPlan plan = learner_.plan_of(1);
    plan.make = [this, message = learner_.finished_message(gradient, /*distance2=*/-1)](size_t) {
      return FlightPlan::Request{learner_.servers_->peer_of(0), message, {}};
    };
    plan.got = [this](size_t, const Message& reply) { on_grant(reply.get_head<GrantReply>()); };
    auto announcement = std::make_unique<Flight>(learner_.messenger_, std::move(plan));
    Flight& sent = *announcement;
    {
      std::lock_guard lock(mutex_);  // a release may come again at any time
      gradient_ = gradient;
      parameters_ = parameters;
      minibatch_ = learner_.work_.minibatch;
      acknowledged_.assign(learner_.ranges(), false);
      began_ = now_seconds();
      announcement_ = std::move(announcement);
    }
    sent.offer(0);
  }

  void complete(size_t range) {
    Flight* pushes = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (!grant_) complete_.push_back(range);
      pushes = pushes_.get();
    }
    if (pushes != nullptr) pushes->offer(range);
  }

  bool end_push() {
    announcement_->wait_all();
    return pushes_ != nullptr;
  }

  // Whether ranges of this version are on their way.
  bool is_pulling(int64_t version) const { return pulls_ && version_ == version; }

  void pull_all(int64_t version, void* parameters) {
    forget();
    parameters_ = parameters;
    began_ = now_seconds();
    start_pulls(version);
    for (size_t i = 0; i < learner_.ranges(); ++i) pulls_->offer(i);
  }

  void await(size_t range) {
    if (pushes_) pushes_->wait(range);
    if (pulls_) pulls_->wait(range);
  }

  bool has_arrived() { return (!pushes_ || pushes_->has_ended()) && (!pulls_ || pulls_->has_ended()); }

  // Returns once nothing is in flight. The version that was pulled, with what servers said of it; -1: none.
  int64_t settle(std::vector<PullReply>& replies) {
    double pulled_from = began_;
    if (pushes_) {
      pushes_->wait_all();
      learner_.count_pushed();
      pulled_from = acknowledged_at_;
      learner_.push_seconds_ = pulled_from - began_;
    }
    if (pulls_) {
      pulls_->wait_all();
      learner_.pull_seconds_ = std::max(0.0, ended_.load() - pulled_from);
    }
    const int64_t version = pulls_ ? version_ : -1;
    forget();
    replies = std::move(replies_);
    return version;
  }

  Span last_flight() const { return {began_, ended_.load(std::memory_order_relaxed)}; }

 private:
  // What triggers others goes first; each waits for what it has in flight, and for its callbacks.
  void forget() {
    std::unique_ptr<Flight> announcement, pushes, pulls;
    {
      std::lock_guard lock(mutex_);
      announcement = std::move(announcement_);
      pushes = std::move(pushes_);
      pulls = std::move(pulls_);
      grant_.reset();
      next_.reset();
      complete_.clear();
      version_ = -1;
    }
    announcement.reset();
    pushes.reset();
  }

  // The following run on the messenger's thread. Offers happen without the lock: they may call back.
  void on_grant(const GrantReply& grant) {
    std::vector<size_t> ready;
    Flight* pushes = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (counts(grant)) start_pushes(grant);
      grant_ = grant;
      ready = std::exchange(complete_, {});
      pushes = pushes_.get();
    }
    for (size_t i = 0; pushes != nullptr && i < ready.size(); ++i) pushes->offer(ready[i]);
    pull_acknowledged();
  }

  void on_release(const ReleaseHead& head) {
    {
      std::lock_guard lock(mutex_);
      if (!announcement_ || head.minibatch <= minibatch_ || next_) return;
      next_ = head;
    }
    pull_acknowledged();
  }

  void on_acknowledged(size_t range) {
    Flight* pulls = nullptr;
    {
      std::lock_guard lock(mutex_);
      acknowledged_[range] = true;
      acknowledged_at_ = now_seconds();
      pulls = pulls_.get();
    }
    if (pulls != nullptr) pulls->offer(range);
  }

  void pull_acknowledged() {
    std::vector<size_t> ready;
    Flight* pulls = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (!pushes_ || !next_ || pulls_ || parameters_ == nullptr) return;
      start_pulls(next_->version);
      pulls = pulls_.get();
      for (size_t i = 0; i < acknowledged_.size(); ++i)
        if (acknowledged_[i]) ready.push_back(i);
    }
    for (size_t range : ready) pulls->offer(range);
  }

  void start_pushes(const GrantReply& grant) {
    FlightPlan plan = learner_.push_plan(gradient_, grant);
    plan.window = window();
    plan.got = [this](size_t range, const Message&) { on_acknowledged(range); };
    pushes_ = std::make_unique<Flight>(learner_.messenger_, std::move(plan));
  }

  void start_pulls(int64_t version) {
    version_ = version;
    FlightPlan plan = learner_.pull_plan(version, parameters_, replies_);
    plan.window = window();
    plan.got = [this, got = std::move(plan.got)](size_t range, const Message& reply) {
      got(range, reply);
      ended_.store(now_seconds(), std::memory_order_relaxed);
    };
    pulls_ = std::make_unique<Flight>(learner_.messenger_, std::move(plan));
  }

  size_t window() const { return kRangesAhead * static_cast<size_t>(learner_.options_.servers); }

  Learner& learner_;
  std::mutex mutex_;
  Gradient gradient_;
  void* parameters_ = nullptr;
  int64_t minibatch_ = 0;  // announced
  std::optional<GrantReply> grant_;
  std::optional<ReleaseHead> next_;  // what follows the announced minibatch
  std::vector<size_t> complete_;     // ranges that wait for the grant
  std::vector<bool> acknowledged_;   // by range
  int64_t version_ = -1;             // pulled
  std::vector<PullReply> replies_;
  double began_ = 0, acknowledged_at_ = 0;
  std::atomic<double> ended_{0};
  std::unique_ptr<Flight> announcement_, pushes_, pulls_;
};

void Learner::OverlapDeleter::operator()(Overlap* overlap) const {
  delete overlap;
}

Learner::Overlap& Learner::overlap() {
  YOKE_CHECK(!options_.replica, "the parts of a replica move together");
  if (!overlap_) overlap_.reset(new Overlap(*this));
  return *overlap_;
}

void Learner::begin_push(const Gradient& gradient, void* parameters) {
  YOKE_CHECK(!options_.measure_distance && !gradient.also, "a gradient that is not pushed by ranges alone");
  overlap().begin_push(gradient, parameters);
  pushing_ = true;
  first_of_push_ = true;
  held_version_ = -1;  // ranges of the next one may arrive from now on
  gradient_ = gradient;
}

bool Learner::push_range(size_t index) {
  if (std::exchange(first_of_push_, false)) fault::at(fault::Point::kPsPush);
  const Range& range = own_range(index);
  const std::byte* data = at(gradient_.data, range);
  const bool finite = options_.type == DataType::kFloat32
                          ? kernels::all_finite(reinterpret_cast<const float*>(data), range.count)
                          : kernels::all_finite(reinterpret_cast<const double*>(data), range.count);
  if (finite) pack_range(index, gradient_);
  if (finite) overlap().complete(index);
  return finite;
}

bool Learner::end_push() {
  pushing_ = false;
  return overlap().end_push();
}

void Learner::begin_pull(void* parameters) {
  held_ = parameters;
  fault::at(fault::Point::kPsPull);
  if (overlap().is_pulling(work_.version) || held_version_ == work_.version) return;
  held_version_ = -1;
  overlap().pull_all(work_.version, parameters);
}

void Learner::await_range(size_t index) {
  if (overlap_) overlap_->await(index);
}

bool Learner::has_arrived() {
  return !overlap_ || overlap_->has_arrived();
}

bool Learner::end_pull() {
  if (!overlap_) return !cancelled();
  std::vector<PullReply> replies;
  const int64_t version = overlap_->settle(replies);
  if (version < 0) return !cancelled();
  const bool same = take_replies(version, replies);
  held_version_ = same ? version : -1;
  return (same || !options_.one_version) && version == work_.version && !cancelled();
}

Learner::Span Learner::last_flight() const {
  return overlap_ ? overlap_->last_flight() : Span{};
}

}  // namespace yoke::ps
