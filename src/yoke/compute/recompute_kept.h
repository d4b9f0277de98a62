// Results that the second run of a recomputed function takes over from the first one instead of making them
// again: what came from other ranks.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace yoke {

// What `make` returns. While yoke::recompute runs a function for the first time the result is kept, and when
// it runs the function again the kept one is returned and `make` is not called. Communication inside of a
// recomputed function goes through here, so that ranks that recompute different parts agree on how often they
// communicate. Requires: the second run makes the same calls in the same order.
torch::Tensor once_for_both_runs(const std::function<torch::Tensor()>& make);

// The kept results of one recomputed function.
class KeptResults {
 public:
  enum class Run { kFirst, kAgain };

  // While it lives, once_for_both_runs() in this thread keeps results here or takes them from here.
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
