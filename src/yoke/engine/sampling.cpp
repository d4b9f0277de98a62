#include "yoke/engine/sampling.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

using Candidate = std::pair<double, int64_t>;

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& one : candidates) sum += one.first;
  return sum;
}

}  // namespace

int64_t Sampler::pick(std::span<const float> logits) {
  YOKE_CHECK(!logits.empty(), "no logits to choose from");
  if (!std::ranges::all_of(logits, [](float value) { return std::isfinite(value); }))
    throw ConfigError("the model's outputs are not finite: its weights are damaged, or training diverged.");
  auto highest = std::ranges::max_element(logits);
  if (options_.temperature == 0) return highest - logits.begin();
  return draw(logits, *highest);
}

int64_t Sampler::draw(std::span<const float> logits, float highest) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    candidates_.emplace_back(
        std::exp((static_cast<double>(logits[i]) - static_cast<double>(highest)) / options_.temperature),
        static_cast<int64_t>(i));
  keep_probable();
  double left = random_.uniform() * sum_of(candidates_);
  for (const Candidate& one : candidates_) {
    left -= one.first;
    if (left < 0) return one.second;
  }
  return candidates_.front().second;  // rounding
}

void Sampler::keep_probable() {
  const auto all = static_cast<int64_t>(candidates_.size());
  const int64_t most = options_.top_k > 0 ? std::min(options_.top_k, all) : all;
  if (most == all && options_.top_p >= 1) return;
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  candidates_.resize(static_cast<size_t>(most));
  double left = options_.top_p * sum_of(candidates_);
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || left > 0)) left -= candidates_[kept++].first;
  candidates_.resize(kept);
}

}  // namespace yoke::engine
