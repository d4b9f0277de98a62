// One model on several devices of this process, or on several threads of the CPU.
//
//   Net net;                                                         // any cloneable torch::nn module
//   auto parallel = yoke::data_parallel(net, {"cuda:0", "cuda:1"});  // or {"cpu", "cpu"}: two threads
//   for (...) { loss(parallel.forward(x).tensor(), y).backward(); optimizer.step(); }
//
// forward() splits its inputs along a dimension, gives each replica a part and concatenates the results;
// backward() leaves the sum of all replicas' gradients in the first one, the model you created, which your
// optimizer updates. Replicas and threads persist between steps. Replicas on the same device share the
// parameters' memory; on other devices parameters are copied when they have changed. A replica's buffers
// start from the first one's in each forward(); only the first one's changes are kept (like
// torch.nn.DataParallel). A batch smaller than the number of replicas uses fewer of them. Dropout of CPU
// replicas draws from one generator, in any order.
//
// One thread. An error in a replica is rethrown with the replica's number and device, once the others have
// ended. No second derivatives.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/parallel/schedule/threads/nested.h"

namespace yoke {

class DataParallel {
 public:
  using Forward = std::function<Nested(size_t replica, const Nested& input)>;

  // `replicas` have the same structure, each on its own device; the first is trained, the others follow it.
  // `forward` computes with one of them and is called in parallel. Throws ConfigError if they differ.
  DataParallel(std::vector<std::shared_ptr<torch::nn::Module>> replicas, Forward forward, int64_t dim = 0);
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  Nested forward(const Nested& input);

  // Where results are gathered; by default the first replica's device.
  void set_output_device(const torch::Device& device);

  size_t replicas() const;

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

// Clones `module` onto every device but its own, which is the first. `call`: how to pass an input to the
// module, if it does not take a single tensor.
template <class Module>
DataParallel data_parallel(std::shared_ptr<Module> module, const std::vector<std::string>& devices,
                           std::function<Nested(Module&, const Nested&)> call, int64_t dim = 0) {
  std::vector<std::shared_ptr<torch::nn::Module>> replicas = {module};
  std::vector<std::shared_ptr<Module>> typed = {module};
  for (size_t i = 1; i < devices.size(); ++i) {
    typed.push_back(std::dynamic_pointer_cast<Module>(module->clone(torch::Device(devices[i]))));
    replicas.push_back(typed.back());
  }
  return DataParallel(
      std::move(replicas),
      [typed, call = std::move(call)](size_t replica, const Nested& input) {
        return call(*typed[replica], input);
      },
      dim);
}

template <class Module>
DataParallel data_parallel(const torch::nn::ModuleHolder<Module>& module,
                           const std::vector<std::string>& devices, int64_t dim = 0) {
  return data_parallel<Module>(
      module.ptr(), devices, [](Module& m, const Nested& x) { return Nested(m.forward(x.tensor())); }, dim);
}

}  // namespace yoke
