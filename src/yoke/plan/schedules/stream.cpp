#include "yoke/plan/schedules/stream.h"

#include <map>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::plan {
namespace {

bool computes(ScheduleOp op) {
  return op == ScheduleOp::kForward || op == ScheduleOp::kBackward || op == ScheduleOp::kWeight;
}

bool begins_forward(ScheduleOp op) {
  return op == ScheduleOp::kForward || op == ScheduleOp::kReceiveActivation;
}

// Index of the first action for micro-batch `first` or a later one.
std::ptrdiff_t begin_of(const std::vector<StreamAction>& actions, int first) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const ScheduleAction& one = actions[i].action;
    if (begins_forward(one.op) && one.microbatch >= first) return static_cast<std::ptrdiff_t>(i);
  }
  return static_cast<std::ptrdiff_t>(actions.size());
}

// Backwards, so that the first use found of a version is its last.
void mark_last_uses(std::vector<StreamAction>& actions) {
  std::map<int, bool> seen;
  for (auto at = actions.rbegin(); at != actions.rend(); ++at) {
    const ScheduleAction& one = at->action;
    if (computes(one.op)) at->last_use = seen.emplace(one.version, true).second;
    if (one.op == ScheduleOp::kUpdate) at->last_use = seen.count(one.version - 1) == 0;
  }
}

}  // namespace

// Without a flush the list of a long run is periodic once the pipeline is full: one sufficiently long list is
// computed, and later minibatches are shifted copies of its periodic part.
ScheduleStream::ScheduleStream(ScheduleRequest request, int worker)
    : request_(std::move(request)), worker_(static_cast<size_t>(worker)) {
  int devices = 0, turns = 1;
  for (int stage = 0; stage < request_.stages; ++stage) {
    devices += request_.replicas_of(stage);
    turns = std::lcm(turns, request_.replicas_of(stage));
  }
  YOKE_CHECK(worker >= 0 && worker < devices, "worker {} of {}", worker, devices);
  bool each = request_.kind == ScheduleKind::kPipedream;
  if (each) period_ = turns / std::gcd(turns, request_.microbatches);
  settled_ = flushes(request_.kind) ? 1 : 2 * devices / request_.microbatches + 4;
  long_list_ = list(flushes(request_.kind) ? 1 : 2 * settled_ + period_);
  if (flushes(request_.kind)) return;
  int from = settled_ * request_.microbatches, to = from + period_ * request_.microbatches;
  for (const StreamAction& one : long_list_) {
    if (one.action.op == ScheduleOp::kUpdate && one.action.microbatch >= from && one.action.microbatch < to)
      ++updates_per_period_;
  }
}

std::vector<StreamAction> ScheduleStream::list(int minibatches) const {
  ScheduleRequest request = request_;
  request.minibatches = minibatches;
  Schedule schedule = make_schedule(request);
  std::vector<StreamAction> actions;
  for (const ScheduleAction& one : schedule.workers[worker_].actions) actions.push_back({one, false});
  mark_last_uses(actions);
  return actions;
}

int ScheduleStream::equivalent(int minibatches) const {
  return minibatches <= settled_ ? minibatches : settled_ + (minibatches - settled_) % period_;
}

std::vector<StreamAction> ScheduleStream::shifted(std::vector<StreamAction> actions) const {
  int periods = (minibatches_ - equivalent(minibatches_)) / period_;
  if (flushes(request_.kind) || periods == 0) return actions;
  for (StreamAction& one : actions) {
    one.action.microbatch += periods * period_ * request_.microbatches;
    bool versioned = computes(one.action.op) || one.action.op == ScheduleOp::kUpdate;
    if (versioned) one.action.version += periods * updates_per_period_;
  }
  return actions;
}

std::vector<StreamAction> ScheduleStream::next() {
  ++minibatches_;
  if (flushes(request_.kind)) return long_list_;
  int end = equivalent(minibatches_);
  return shifted({long_list_.begin() + begin_of(long_list_, (end - 1) * request_.microbatches),
                  long_list_.begin() + begin_of(long_list_, end * request_.microbatches)});
}

std::vector<StreamAction> ScheduleStream::drain() {
  std::vector<StreamAction> rest;
  if (!flushes(request_.kind) && minibatches_ > 0) {
    int end = equivalent(minibatches_);
    std::vector<StreamAction> whole = list(end);
    // Both lists are identical up to here, whatever follows.
    rest = shifted({whole.begin() + begin_of(long_list_, end * request_.microbatches), whole.end()});
  }
  minibatches_ = 0;
  return rest;
}

}  // namespace yoke::plan
