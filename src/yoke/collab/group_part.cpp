#include "yoke/collab/group_part.h"

#include <algorithm>

#include "yoke/kernels/optimizer_steps.h"

namespace yoke::collab {

GroupPart::GroupPart(const GroupPlan& plan, std::span<const float> own, size_t chunk, GroupMemory& memory)
    : plan_(plan),
      own_(own),
      chunk_(chunk),
      chunks_((own.size() + chunk - 1) / chunk),
      inbox_(plan.members.size()),
      arrived_(plan.members.size()),
      expected_(plan.members.size()),
      banned_(plan.members.size()),
      result_(memory.take(plan.self, own.size())) {
  for (size_t i = 0; i < plan.members.size(); ++i) {
    if (i == plan.self || !(plan.members[i].weight > 0)) continue;
    inbox_[i] = memory.take(i, own.size());
    expected_[i] = chunks_;
  }
}

std::span<float> GroupPart::inbox(size_t member, size_t chunk) {
  const size_t first = chunk * chunk_;
  return inbox_[member].subspan(first, std::min(chunk_, own_.size() - first));
}

std::span<const float> GroupPart::result(size_t chunk) const {
  const size_t first = chunk * chunk_;
  return result_.subspan(first, std::min(chunk_, own_.size() - first));
}

bool GroupPart::is_complete(size_t chunk) const {
  for (size_t i = 0; i < expected_.size(); ++i)
    if (expected_[i] > chunk && arrived_[i] <= chunk) return false;
  return true;
}

std::vector<size_t> GroupPart::combine_ready() {
  if (combined_ == chunks_) return {};
  if (!is_elementwise(plan_.robust)) {
    if (!is_complete(chunks_ - 1)) return {};
    combined_ = chunks_;
    return combine_chunks(0, chunks_);
  }
  std::vector<size_t> bad;
  while (combined_ < chunks_ && is_complete(combined_)) {
    for (size_t member : combine_chunks(combined_, combined_ + 1)) bad.push_back(member);
    ++combined_;
  }
  return bad;
}

// Of those who gave all of it. With vectors judged as a whole (clip, krum), half a vector is of no use.
std::vector<Contribution> GroupPart::contributions(size_t first, size_t last) const {
  const size_t begin = first * chunk_, count = std::min(last * chunk_, own_.size()) - begin;
  std::vector<Contribution> all;
  for (size_t i = 0; i < inbox_.size(); ++i) {
    const bool own = i == plan_.self;
    if (!(plan_.members[i].weight > 0) || banned_[i] || (!own && arrived_[i] < last)) continue;
    all.push_back(
        {own ? own_.subspan(begin, count) : inbox_[i].subspan(begin, count), plan_.members[i].weight});
  }
  return all;
}

std::vector<size_t> GroupPart::combine_chunks(size_t first, size_t last) {
  const size_t begin = first * chunk_, count = std::min(last * chunk_, own_.size()) - begin;
  std::span<float> result = result_.subspan(begin, count);
  std::vector<size_t> bad;
  for (size_t i = 0; i < inbox_.size(); ++i) {
    if (inbox_[i].empty() || banned_[i] || arrived_[i] < last) continue;
    if (kernels::all_finite(inbox_[i].data() + begin, static_cast<int64_t>(count))) continue;
    banned_[i] = true;
    bad.push_back(i);
  }
  combine(plan_.robust, contributions(first, last), plan_.suspects, result);
  return bad;
}

void GroupPart::judge(GroupResult& into) const {
  if (plan_.robust == Robust::kNone || combined_ < chunks_ || chunks_ == 0) return;
  const std::vector<Contribution> given = contributions(0, chunks_);
  const std::vector<double> scores = outlier_scores(given, result_),
                            distances = distances_from(result_, given);
  into.usual_size = usual_size(given);
  size_t next = 0;
  for (size_t i = 0; i < inbox_.size(); ++i) {
    if (!(plan_.members[i].weight > 0) || banned_[i] || (i != plan_.self && arrived_[i] < chunks_)) continue;
    into.outliers.push_back({plan_.members[i].peer, scores[next], distances[next]});
    ++next;
  }
}

}  // namespace yoke::collab
