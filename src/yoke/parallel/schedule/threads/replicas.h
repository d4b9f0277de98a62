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

  // Copies parameters, buffers, modes and requires_grad of the first one to the first `count` replicas.
  void refresh(size_t count);

  // Clears the gradients of the others: leftovers of a failed backward() would be added to the next one's.
  void drop_gradients();

  // Adds the gradients of the first `count` replicas to those of the first one, in order, and clears them.
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
  std::vector<Follower> followers_;  // including the first one
};

}  // namespace yoke::parallel
