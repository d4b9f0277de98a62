// Results that the second run of a recomputed function reuses from the first instead of computing them: those
// that came from other ranks.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace yoke {

// Returns the result of `make`. During the first run of yoke::recompute the result is kept; during the second
// run the kept one is returned and `make` is not called. Communication inside a recomputed function goes
// through here, so that ranks that recompute different parts agree on how often they communicate. Requires:
// the second run makes the same calls in the same order.
torch::Tensor once_for_both_runs(const std::function<torch::Tensor()>& make);

// The kept results of one recomputed function.
class KeptResults {
 public:
  enum class Run { kFirst, kAgain };

  // While it exists, once_for_both_runs() in this thread keeps results here or takes them from here.
  class Scope {
   public:
    Scope(KeptResults& results, Run run);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend torch::Tensor once_for_both_runs(const std::function<torch::Tensor()>& make);
    torch::Tensor take();
    void keep(const torch::Tensor& result) { results_.kept_.push_back(result); }

    KeptResults& results_;
    Run run_;
    size_t taken_ = 0;
    Scope* outer_;
  };

 private:
  std::vector<torch::Tensor> kept_;
};

}  // namespace yoke
