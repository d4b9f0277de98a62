// Copies of a model that follow the first one.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace yoke::parallel {

class Replicas {
 public:
  // Throws ConfigError that names the first difference.
  explicit Replicas(std::vector<std::shared_ptr<torch::nn::Module>> modules);

  size_t size() const { return modules_.size(); }
  torch::Device device(size_t replica) const { return devices_[replica]; }
  bool all_on_cpu() const;

  // The first `count` get the first one's parameters, buffers, modes and what wants a gradient.
  void refresh(size_t count);

  // The others have none: what a backward() that failed has left would be added to the next one's.
  void drop_gradients();

  // Adds the gradients of the first `count` to those of the first one, in order, and clears them.
  void collect_gradients(size_t count);

 private:
  struct Follower {
    std::vector<torch::Tensor> parameters, buffers;
    std::vector<std::shared_ptr<torch::nn::Module>> parts;
    std::vector<int64_t> versions;  // of the first one's parameters, when they were copied
  };
  void follow(Follower& follower);

  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<torch::Device> devices_;
  std::vector<Follower> followers_;  // the first one too
};

}  // namespace yoke::parallel
