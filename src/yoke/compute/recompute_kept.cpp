#include "yoke/compute/recompute_kept.h"

#include "yoke/base/error.h"

namespace yoke {
namespace {

thread_local KeptResults::Scope* innermost_scope = nullptr;

}  // namespace

KeptResults::Scope::Scope(KeptResults& results, Run run)
    : results_(results), run_(run), outer_(innermost_scope) {
  if (run == Run::kFirst) results_.kept_.clear();
  innermost_scope = this;
}

KeptResults::Scope::~Scope() {
  innermost_scope = outer_;
}

torch::Tensor KeptResults::Scope::take() {
  YOKE_CHECK(taken_ < results_.kept_.size(), "a recomputed function asked for {} kept results, and made {}",
             taken_ + 1, results_.kept_.size());
  return results_.kept_[taken_++];
}

torch::Tensor once_for_both_runs(const std::function<torch::Tensor()>& make) {
  // A function inside one that runs again may itself run for the first time: it keeps what the outer one
  // takes.
  torch::Tensor result;
  for (auto* scope = innermost_scope; scope != nullptr && !result.defined(); scope = scope->outer_)
    if (scope->run_ == KeptResults::Run::kAgain) result = scope->take();
  if (!result.defined()) result = make();
  for (auto* scope = innermost_scope; scope != nullptr && scope->run_ == KeptResults::Run::kFirst;
       scope = scope->outer_)
    scope->keep(result);
  return result;
}

}  // namespace yoke
