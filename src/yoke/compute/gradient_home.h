// Destinations of gradients: layers write them there directly, which saves a copy.
#pragma once

#include <torch/types.h>

#include <unordered_map>

namespace yoke::compute {

// Destinations of some parameters' gradients. One thread.
class GradientHomes {
 public:
  // Requires: `home` has the parameter's shape and is contiguous.
  void set(const torch::Tensor& parameter, const torch::Tensor& home);
  // Its gradient has arrived, wherever it is: the destination may be written again.
  void arrived(const torch::Tensor& parameter);
  void remove(const torch::Tensor& parameter);
  void clear() { homes_.clear(); }

  // While it exists, layers on this thread write gradients to their destinations. Only for a backward() whose
  // gradients end in parameters: the results of torch::autograd::grad would be overwritten later.
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
    bool taken = false;  // written in this backward: a second use of the parameter needs its own memory
  };
  std::unordered_map<const void*, Home> homes_;
};

// The destination of the parameter's gradient, to be written; undefined if there is none, or if it is already
// in use.
torch::Tensor gradient_home(const torch::Tensor& parameter);

}  // namespace yoke::compute
