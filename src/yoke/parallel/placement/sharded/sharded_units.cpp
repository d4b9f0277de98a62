#include "yoke/parallel/placement/sharded/sharded_units.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/common/ddp/same_model.h"

namespace yoke::parallel {
namespace {

// Units whose gradients are in flight at the same time: one travels while the next is filled.
constexpr size_t kInFlight = 2;

}  // namespace

ShardedUnits::ShardedUnits(const ShardedPart& part, const std::vector<UnitPlan>& plans,
                           comm::Communicator& comm, const FullyShardOptions& options)
    : comm_(comm), pool_(comm), residency_(options.prefetch, !options.reshard_after_forward) {
  const NamedTensors& parameters = part.parameters;
  if (comm.size() > 1) {
    check_same_model(parameters, part.buffers, comm);
    give_values(parameters, comm, 0);
    give_values(part.buffers, comm, 0);
  }
  for (const UnitPlan& plan : plans) {
    units_.push_back(std::make_unique<Unit>(plan, units_.size(), parameters, comm, pool_, options));
    for (size_t index : plan.parameters)
      unit_of_[parameters[index].second.unsafeGetTensorImpl()] = units_.size() - 1;
    resident_ = resident_ && units_.back()->resident();
  }
  pieces_ = std::make_unique<OwnedPieces>(units_, plans, parameters, comm);
  waiting_.resize(units_.size());
  for (size_t u = 0; u < units_.size(); ++u)
    for (const auto& [name, parameter] : units_[u]->parameters())
      if (units_[u]->trained()) {
        names_.push_back(name);
        watch(u, parameter);
      }
  end_round();
}

ShardedUnits::~ShardedUnits() = default;

void ShardedUnits::watch(size_t unit, const torch::Tensor& parameter) {
  size_t index = watched_.size();
  watched_.push_back({unit});
  gradient_hooks_.add(parameter, [this, index] { on_gradient(index); });
}

ShardedUnits::Units ShardedUnits::units_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const {
  Units units;
  for (const auto& module : modules)
    for (const torch::Tensor& parameter : module->parameters())
      if (auto found = unit_of_.find(parameter.unsafeGetTensorImpl()); found != unit_of_.end())
        if (std::find(units.begin(), units.end(), found->second) == units.end())
          units.push_back(found->second);
  return units;
}

// ---- before parameters are read ----

void ShardedUnits::use(const Units& units) {
  if (held_) return;
  if (broken_) tell_of_failure();
  bool there = std::all_of(units.begin(), units.end(), [&](size_t u) { return units_[u]->present(); });
  if (there && !stale_ && (resident_ || units == last_)) return;
  torch::NoGradGuard no_grad;
  double begin = now_seconds();
  if (stale_) refresh();
  if (!resident_) {
    last_ = units;
    sent_ = true;
    Residency::Change change = residency_.use(units);
    for (size_t unit : change.release) units_[unit]->release();
    for (size_t unit : change.gather) units_[unit]->begin_gather();
    for (size_t unit : units) units_[unit]->gather();
  }
  times_.exposed += now_seconds() - begin;
}

void ShardedUnits::use_in_backward(const Units& units) {
  use(units);
  for (size_t unit : units)
    if (units_[unit]->trained()) units_[unit]->make_homes(homes_);
}

// Every rank has moved its own part, and nobody reads the old values any more: backward() ended with averages
// that all ranks had given something to.
void ShardedUnits::refresh() {
  for (auto& unit : units_) unit->refresh();
  if (resident_ && comm_.size() > 1) comm_.barrier({.name = "parameters"}).wait();
  stale_ = false;
}

void ShardedUnits::release_all() {
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u]->release();
    residency_.gone(u);
  }
  last_.clear();
}

void ShardedUnits::hold() {
  if (stale_) refresh();
  for (auto& unit : units_) unit->gather();
  held_ = true;
}

void ShardedUnits::let_go() noexcept {
  held_ = false;
  release_all();
}

// ---- while backward() runs ----

void ShardedUnits::on_gradient(size_t index) {
  begin_round();
  Watched& watched = watched_[index];
  ++watched.arrivals;
  if (watched.arrivals == watched.expected && --waiting_[watched.unit] == 0) reduce(watched.unit);
}

void ShardedUnits::begin_round() {
  if (begun_ && !round_.expired()) return;
  if (begun_) fail(false);
  if (broken_) tell_of_failure();
  begun_ = true;
  auto round = std::make_shared<char>();
  round_ = round;
  at_end_of_backward([this, round = std::move(round)] { finish_backward(); });
}

void ShardedUnits::reduce(size_t unit) {
  if (units_[unit]->reducing())
    while (units_[unit]->reducing()) finish_oldest();
  while (in_flight_.size() >= kInFlight) finish_oldest();
  units_[unit]->begin_reduce(homes_);
  in_flight_.push_back(unit);
  sent_ = sent_ || comm_.size() > 1;
  units_[unit]->release();
  residency_.gone(unit);
}

void ShardedUnits::finish_oldest() {
  torch::NoGradGuard no_grad;
  double begin = now_seconds();
  size_t unit = in_flight_.front();
  torch::Tensor part = units_[unit]->finish_reduce();
  times_.exposed += now_seconds() - begin;
  times_.reductions.push_back(units_[unit]->reduce_timing());
  pieces_->add_gradients(unit, part);
  units_[unit]->drop_reduced();
  in_flight_.pop_front();
}

// ---- its end ----

void ShardedUnits::finish_backward() {
  complain_of_missing();
  // What came later than expected: a parameter in several recomputed parts, in the first backward().
  reduce_rest();
  for (Watched& watched : watched_)
    if (watched.arrivals > 0) watched.expected = watched.arrivals;
  homes_.clear();
  for (auto& unit : units_) unit->drop_reduced();  // homes that nothing was written to
  release_all();
  residency_.end_pass();
  stale_ = true;
  end_round();
}

void ShardedUnits::reduce_rest() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const NamedTensors& all = units_[u]->parameters();
    bool left = std::any_of(all.begin(), all.end(), [](const auto& p) { return p.second.grad().defined(); });
    if (left && units_[u]->trained()) reduce(u);
  }
  while (!in_flight_.empty()) finish_oldest();
}

void ShardedUnits::complain_of_missing() const {
  std::vector<bool> begun(units_.size(), false);
  for (const Watched& watched : watched_)
    if (watched.arrivals > 0) begun[watched.unit] = true;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].arrivals > 0 || !begun[watched_[i].unit]) continue;
    throw ConfigError(
        "backward() gave no gradient to {}, and some to other parameters of its unit {} (rank {}). Freeze "
        "what is not trained (requires_grad_(false)), or make it a unit of its own.",
        names_[i], units_[watched_[i].unit]->name(), comm_.rank());
  }
}

void ShardedUnits::end_round() {
  std::fill(waiting_.begin(), waiting_.end(), 0);
  for (Watched& watched : watched_) {
    watched.arrivals = 0;
    ++waiting_[watched.unit];
  }
  begun_ = false;
  sent_ = false;
  round_.reset();
}

// ---- failures ----

void ShardedUnits::fail(bool sent) {
  for (auto& unit : units_)
    for (const auto& [name, parameter] : unit->parameters()) parameter.mutable_grad().reset();
  if ((sent_ || sent) && comm_.size() > 1) {
    broken_ = true;
    return;
  }
  homes_.clear();
  in_flight_.clear();
  for (auto& unit : units_) unit->drop_reduced();
  release_all();
  residency_.end_pass();
  end_round();
}

// The others wait for the rest of what was sent. An operation they do not expect tells everybody at once.
void ShardedUnits::tell_of_failure() {
  torch::Tensor nothing = torch::zeros({1}, torch::kInt32).to(pieces_->parameters()[0].second.device());
  comm::all_reduce(comm_, nothing, ReduceOp::kSum, "a pass after one that failed half-way");
  throw CommError(
      "rank {} begins a pass after one that failed when some of its data had been sent. It cannot be taken "
      "back: stop all ranks and resume from the last checkpoint.",
      comm_.rank());
}

}  // namespace yoke::parallel
