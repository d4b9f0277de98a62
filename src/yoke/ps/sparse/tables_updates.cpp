// The part of Tables that follows the scheduler: updates, versions, snapshots, workers that come and go.
//
// An update names its gradients by worker, life and minibatch. It is applied when each has arrived or never
// will: of a lost worker, or of a life that is over.
#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {
namespace {

HeldGradients::Name name_of(const Contributor& one) {
  return {static_cast<int>(one.worker), one.life, one.minibatch};
}

}  // namespace

void Tables::update_decided(const UpdateHead& head, std::vector<Contributor> from) {
  if (tables_.empty()) {
    version_ = head.version;
    return;
  }
  if (head.clip_norm > 0)
    throw CommError("update {} is clipped by its norm, which sparse tables do not support", head.number);
  // Sums depend on the order of addition: runs under synchronous rules are to be equal.
  std::sort(from.begin(), from.end(),
            [](const Contributor& a, const Contributor& b) { return name_of(a) < name_of(b); });
  updates_.push_back({head, std::move(from)});
  advance();
}

bool Tables::is_over(const Contributor& one) const {
  const Worker& sender = workers_[static_cast<size_t>(one.worker)];
  return held_.find(name_of(one)) != nullptr || sender.lost || one.life < sender.life;
}

std::optional<int> Tables::update_owed_by() const {
  if (updates_.empty()) return std::nullopt;
  for (const Contributor& one : updates_.front().from)
    if (!is_over(one)) return static_cast<int>(one.worker);
  return std::nullopt;
}

void Tables::advance() {
  while (!updates_.empty() && !update_owed_by()) {
    const Update update = std::move(updates_.front());
    updates_.pop_front();
    apply(update);
    reached(update.head.version);
  }
}

void Tables::apply(const Update& update) {
  std::vector<const HeldGradient*> gradients;
  bool measure = false;
  for (const Contributor& one : update.from) {
    const HeldGradient* held = held_.find(name_of(one));
    if (held == nullptr) continue;
    gradients.push_back(held);
    measure |= held->measure;
  }
  std::vector<std::optional<SparseSum>> sums(tables_.size());
  for (const HeldGradient* gradient : gradients) {
    for (const std::optional<HeldPart>& part : gradient->parts) {
      const auto number = static_cast<size_t>(part->table);
      const TableShape& shape = tables_[number]->shape();
      if (!sums[number]) sums[number].emplace(shape.type, shape.pushed);
      sums[number]->add(part->keys, part->values, gradient->scale);
    }
  }
  // Missing gradients of lost workers do not reduce the step size.
  const double share =
      static_cast<double>(update.from.size()) / static_cast<double>(std::max<size_t>(1, gradients.size()));
  const double weight = update.head.weight * share;
  double square = 0;
  if (measure)
    for (const auto& sum : sums) square += sum ? sum->square(weight) : 0;
  for (size_t i = 0; i < sums.size() && std::isfinite(square); ++i)
    if (sums[i]) tables_[i]->apply({update.head.lr, weight}, sums[i]->keys(), sums[i]->values());
  square_ = measure ? square : -1;
  for (const Contributor& one : update.from) {
    held_.erase(name_of(one));
    Worker& sender = worker(static_cast<int>(one.worker));
    if (one.life == sender.life) sender.applied = std::max(sender.applied, one.minibatch);
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
  if (updates_.empty()) held_.clear();
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
  Worker fresh;
  fresh.life = life;
  fresh.lists.resize(kMostTables);
  worker(rank) = std::move(fresh);
  held_.erase_incomplete(rank);
  for (auto& rounds : rounds_)
    if (rounds) rounds->bring_back(rank);
}

}  // namespace yoke::ps::sparse
