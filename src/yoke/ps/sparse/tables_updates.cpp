// The part of Tables that follows the scheduler: updates, versions, snapshots, workers that come and go.
//
// An update names its gradients by worker, life and minibatch. It is applied when each has arrived or never
// will: of a lost worker, or of a life that is over.
#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {
namespace {

HeldGradients::Name name_of(const Contributor& one) {
  return {static_cast<int>(one.worker), one.life, one.minibatch};
}

}  // namespace

void Tables::update_decided(const UpdateHead& head, std::vector<Contributor> from) {
  if (head.number <= updates_) return;  // a copy has it already
  if (tables_.empty()) {
    version_ = head.version;
    updates_ = head.number;
    return;
  }
  if (head.clip_norm > 0)
    throw CommError("update {} is clipped by its norm, which sparse tables do not support", head.number);
  // Sums depend on the order of addition: runs under synchronous rules are to be equal.
  std::sort(from.begin(), from.end(),
            [](const Contributor& a, const Contributor& b) { return name_of(a) < name_of(b); });
  decided_.push_back({head, std::move(from)});
  advance();
}

bool Tables::is_over(const Contributor& one) const {
  const Worker& sender = workers_[static_cast<size_t>(one.worker)];
  return held_.find(name_of(one)) != nullptr || sender.lost || one.life < sender.life;
}

std::optional<int> Tables::update_owed_by() const {
  if (decided_.empty()) return std::nullopt;
  for (const Contributor& one : decided_.front().from)
    if (!is_over(one)) return static_cast<int>(one.worker);
  return std::nullopt;
}

void Tables::advance() {
  while (options_.serves && !decided_.empty() && !update_owed_by()) {
    const Update update = std::move(decided_.front());
    decided_.pop_front();
    apply(update);
    reached(update.head.version);
  }
  if (ended_ && decided_.empty()) finish();
}

std::vector<const HeldGradient*> Tables::gradients_of(const std::vector<Contributor>& from) const {
  std::vector<const HeldGradient*> gradients;
  for (const Contributor& one : from)
    if (const HeldGradient* held = held_.find(name_of(one))) gradients.push_back(held);
  return gradients;
}

Tables::Sums Tables::sums_of(const std::vector<const HeldGradient*>& gradients) const {
  Sums sums(tables_.size());
  for (const HeldGradient* gradient : gradients) {
    for (const std::optional<HeldPart>& part : gradient->parts) {
      const auto number = static_cast<size_t>(part->table);
      const TableShape& shape = tables_[number]->shape();
      if (!sums[number]) sums[number].emplace(shape.type, shape.pushed);
      sums[number]->add(part->keys, part->values, gradient->scale);
    }
  }
  return sums;
}

void Tables::apply(const Update& update) {
  const std::vector<const HeldGradient*> gradients = gradients_of(update.from);
  bool measure = false;
  for (const HeldGradient* held : gradients) measure |= held->measure && update.head.skips == 0;
  const Sums sums = sums_of(gradients);
  // Missing gradients of lost workers do not reduce the step size.
  const double share =
      static_cast<double>(update.from.size()) / static_cast<double>(std::max<size_t>(1, gradients.size()));
  double weight = update.head.weight * share;
  double square = 0;
  if (measure)
    for (const auto& sum : sums) square += sum ? sum->square(weight) : 0;
  if (!std::isfinite(square) || update.head.skips != 0) weight = 0;
  log_update(update, sums, weight, measure ? square : -1);
  apply_sums(sums, update.head.lr, weight);
  square_ = measure ? square : -1;
  made(update.head, update.from);
}

// `weight` 0: nothing moves.
void Tables::apply_sums(const Sums& sums, double lr, double weight) {
  for (size_t i = 0; i < tables_.size() && weight != 0; ++i) {
    if (!tables_[i]) continue;
    const SparseSum* sum = i < sums.size() && sums[i] ? &*sums[i] : nullptr;
    tables_[i]->update({lr, weight}, sum != nullptr ? sum->keys() : std::span<const Key>(),
                       sum != nullptr ? sum->values() : nullptr);
  }
}

// An update was applied: its gradients are consumed.
void Tables::made(const UpdateHead& head, const std::vector<Contributor>& from) {
  updates_ = head.number;
  for (const Contributor& one : from) {
    held_.erase(name_of(one));
    Worker& sender = worker(static_cast<int>(one.worker));
    if (one.life == sender.life) sender.applied = std::max(sender.applied, one.minibatch);
    auto acknowledged = [&](const Unanswered& push) { return push.name == name_of(one); };
    for (const Unanswered& push : unanswered_)
      if (acknowledged(push)) answer_pushed(push.answer);
    std::erase_if(unanswered_, acknowledged);
  }
}

// Answers requests that waited for this version.
void Tables::reached(int64_t version) {
  version_ = version;
  if (version_ == snapshot_wanted_)
    for (auto& table : tables_)
      if (table) table->take_snapshot();
  std::vector<Waiting> ready;
  auto is_ready = [&](const Waiting& one) {
    if (!one.snapshot) return one.version <= version_;
    return one.version == version_ && version_ == snapshot_wanted_;
  };
  for (Waiting& one : waiting_)
    if (is_ready(one)) ready.push_back(one);
  std::erase_if(waiting_, is_ready);
  for (Waiting& one : ready) {
    --worker(one.from).waiting;
    one.answer();
  }
}

void Tables::ended() {
  ended_ = true;
  if (decided_.empty()) finish();
}

// Drops gradients of updates that will not be, and answers pulls ahead of them with the last version.
void Tables::finish() {
  held_.clear();
  for (const Unanswered& push : std::exchange(unanswered_, {})) answer_pushed(push.answer);
  auto ahead = [&](const Waiting& one) { return !one.snapshot; };
  std::vector<Waiting> ready;
  for (Waiting& one : waiting_)
    if (ahead(one)) ready.push_back(one);
  std::erase_if(waiting_, ahead);
  for (const Waiting& one : ready) {
    --worker(one.from).waiting;
    one.answer();
  }
}

// No later update has been decided yet.
void Tables::keep(int64_t version) {
  drop();
  snapshot_wanted_ = version;
  if (version_ == version) reached(version);
}

void Tables::drop() {
  snapshot_wanted_ = -1;
  for (auto& table : tables_)
    if (table) table->drop_snapshot();
}

void Tables::worker_lost(int rank) {
  worker(rank).lost = true;
  std::erase_if(waiting_, [&](const Waiting& one) { return one.from == rank; });
  worker(rank).waiting = 0;
  std::erase_if(unanswered_, [&](const Unanswered& one) { return std::get<0>(one.name) == rank; });
  held_.erase_incomplete(rank);
  advance();
  std::erase_if(waiting_rounds_, [&](const WaitingRound& one) { return one.from == rank; });
  for (size_t table = 0; table < rounds_.size(); ++table) {
    if (!rounds_[table]) continue;
    rounds_[table]->lose(rank);
    apply_rounds(static_cast<int32_t>(table));
  }
}

void Tables::worker_back(int rank, int64_t life) {
  worker(rank).lost = false;
  if (life <= worker(rank).life) return;  // a change has told it
  Worker fresh;
  fresh.life = life;
  fresh.lists.resize(kMostTables);
  worker(rank) = std::move(fresh);
  held_.erase_incomplete(rank);
  for (auto& rounds : rounds_)
    if (rounds) rounds->bring_back(rank);
}

}  // namespace yoke::ps::sparse
