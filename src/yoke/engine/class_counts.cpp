#include "yoke/engine/class_counts.h"

#include <ATen/ops/eq.h>
#include <torch/torch.h>

#include <cmath>

namespace yoke::engine {
namespace {

constexpr int64_t kMostClasses = 2048;  // 32 MB of counts
constexpr int64_t kFirst = 5;

bool classifies(const models::Model& model) {
  const bool one_answer = model.sample.kind == SampleKind::kImage || model.sample.kind == SampleKind::kVector;
  return model.correct && one_answer && model.sample.classes > 1 && model.sample.classes <= kMostClasses;
}

}  // namespace

ClassCounts::ClassCounts(const models::Model& model)
    : classes_(classifies(model) ? model.sample.classes : 0) {
  if (classes_ > 0) sums_.assign(static_cast<size_t>(2 + classes_ * classes_), 0.0);
}

void ClassCounts::add(const torch::Tensor& logits, const torch::Tensor& target) {
  const bool whole = logits.dim() == 2 && logits.size(1) == classes_ && target.dim() == 1;
  if (classes_ == 0 || !whole || target.scalar_type() != torch::kInt64) return;
  const torch::Tensor taken = logits.argmax(1).cpu(), actual = target.cpu();
  for (int64_t i = 0; i < actual.size(0); ++i)
    ++sums_[static_cast<size_t>(2 + actual.const_data_ptr<int64_t>()[i] * classes_ +
                                taken.const_data_ptr<int64_t>()[i])];
  sums_[0] += static_cast<double>(actual.size(0));
  if (classes_ <= kFirst) return;
  const torch::Tensor first = std::get<1>(logits.topk(kFirst, 1));
  sums_[1] += static_cast<double>(first.eq(target.unsqueeze(1)).any(1).sum().item<int64_t>());
}

ClassScores ClassCounts::scores(const double* sums, double copies, std::vector<std::string> names) const {
  ClassScores scores;
  if (classes_ == 0 || !(sums[0] > 0)) return scores;
  if (classes_ > kFirst) scores.top5 = sums[1] / sums[0];
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < classes_ * classes_; ++i) counts.push_back(std::llround(sums[2 + i] / copies));
  scores.results = metrics::make_class_results(counts, std::move(names));
  return scores;
}

}  // namespace yoke::engine
