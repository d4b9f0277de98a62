// Where gradients are wanted: layers write them there, and nobody has to copy them afterwards.
#pragma once

#include <torch/types.h>

#include <unordered_map>

namespace yoke::compute {

// The homes of some parameters' gradients. One thread.
class GradientHomes {
 public:
  // Requires: `home` has the parameter's shape and is contiguous.
  void set(const torch::Tensor& parameter, const torch::Tensor& home);
  // Its gradient has come, wherever it lies: the home may be written again.
  void arrived(const torch::Tensor& parameter);
  void clear() { homes_.clear(); }

  // While it lives, layers on this thread write gradients to their homes. Only for a backward() whose
  // gradients end in parameters: what torch::autograd::grad returned would be overwritten later.
  class Use {
   public:
    explicit Use(GradientHomes& homes);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    GradientHomes* before_;
  };

 private:
  friend torch::Tensor gradient_home(const torch::Tensor& parameter);
  struct Home {
    torch::Tensor place;
    bool taken = false;  // written in this backward: a second use of the parameter needs memory of its own
  };
  std::unordered_map<const void*, Home> homes_;
};

// A tensor over the home of the parameter's gradient, to be written; undefined where there is none, or where
// it holds something already.
torch::Tensor gradient_home(const torch::Tensor& parameter);

}  // namespace yoke::compute
